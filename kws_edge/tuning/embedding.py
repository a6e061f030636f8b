"""Windows of sound as vectors, by the layers of a trained network, and those of other speech beside them.

The third block of the network says, every 10 ms, what sounds there are around. Over the window, in five stretches of
0.15 s, that is a vector of 5 numbers for each channel. It is brought to a space in which other speech has no preferred
direction (whitening), and to length 1; there the cosine of the angle between two says how alike they are.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import AudioError, ModelError
from kws_edge.files import read_arrays
from kws_edge.model.features import FrontEnd, mfcc
from kws_edge.model.graph_edit import Graph, float_value
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.runtime import CPU, open_session
from kws_edge.model.shipped import MODELS, shipped_models

TRUNK: Final = "stream"
LAYER: Final = "block3_1_relu"
"""Of the trunk: float32 [batch, channels, 1, 76] for a window of 128 frames."""
STRETCHES: Final = 5
STRETCH: Final = 15
"""Frames in each stretch."""
BACKGROUND: Final = MODELS / "enrol.npz"
"""Other speech: `mean` float32 [size] and `whitening` float16 [size, m] of the vectors, `vectors` int8 [n, m], the
whitened ones of length 1 times 127, `reach`, what the threshold is set by, and `trunk`, whose vectors they are
(`fingerprint`)."""
TAIL: Final = 0.03
"""Share of the vectors of other speech that counts as the tail of their likeness."""


@dataclass(frozen=True, slots=True, eq=False)
class Background:
    """What is shipped of other speech; see `BACKGROUND`."""

    mean: F32
    whitening: F32
    vectors: F32
    reach: float
    trunk: str

    @classmethod
    def load(cls, path: Path = BACKGROUND) -> "Background":
        """Read it. Raises ModelError where it is missing or damaged."""
        try:
            file = read_arrays(path)
            mean, whitening, vectors = (file[name].astype(np.float32) for name in ("mean", "whitening", "vectors"))
            reach, trunk = float(file["reach"]), str(file["trunk"])
            size, m = whitening.shape
            if mean.shape != (size,) or vectors.shape[1:] != (m,) or not len(vectors):
                raise ValueError(f"arrays {[list(a.shape) for a in (mean, whitening, vectors)]}")
            if not (np.isfinite([reach, mean.sum(), whitening.sum()]).all() and vectors.any(axis=1).all()):
                raise ValueError("values that are not finite, or vectors of zeros")
            return cls(mean, whitening, vectors / np.float32(127), reach, trunk)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path}: {error}; expected the file that comes with kws-edge: reinstall it") from None

    def whitened(self, vectors: F32) -> F32:
        """Vectors [n, size] → [n, m], of length 1."""
        y = (vectors - self.mean) @ self.whitening
        return np.asarray(y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-6), np.float32)

    def threshold(self, template: F32) -> float:
        """The cosine above which a window counts as the word of a template [m]."""
        quantile, excess = tail(self.vectors @ template)
        return quantile + self.reach * excess

    @property
    def method(self) -> str:
        """How the threshold is found, in words, for the model's card."""
        return (
            f"{self.reach:g} times the mean excess above the {1 - TAIL:.0%} quantile of the cosines of "
            f"{len(self.vectors):,} windows of other speech"
        )


def tail(cosines: F32) -> tuple[float, float]:
    """The quantile beyond which `TAIL` of the values lie, and by how much they exceed it on average."""
    quantile = float(np.quantile(cosines, 1 - TAIL))
    return quantile, float((cosines[cosines > quantile] - quantile).mean())


class Embedding:
    """Windows → vectors, by the trunk."""

    def __init__(self) -> None:
        """Open the trunk. Raises ModelError where it is not shipped or damaged."""
        path = shipped_models().get(TRUNK)
        if path is None:
            raise ModelError(f"no model {TRUNK} in {MODELS}; expected those that come with kws-edge: reinstall it")
        self.model = KeywordModel.load(path)
        graph = Graph.parse(path.read_bytes())
        graph.nodes = graph.before(LAYER)
        self.fingerprint = fingerprint(graph)
        graph.inputs = {"mfcc": float_value("mfcc", "batch", self.front_end.n_mfcc, "frames")}
        graph.outputs = {LAYER: float_value(LAYER, "batch", "channels", 1, "time")}
        self._session = open_session(graph.assemble(TRUNK), CPU, 1)

    @property
    def front_end(self) -> FrontEnd:
        """Of the windows."""
        return self.model.metadata.front_end

    def __call__(self, windows: F32) -> F32:
        """Float32 [n, 64, 128] → float32 [n, size]."""
        return np.concatenate([self._vectors(window[np.newaxis], 1) for window in windows])

    def of_stream(self, samples: F32, hop: int = 10) -> F32:
        """The vectors of a recording's windows, `hop` frames apart: float32 [n] → float32 [windows, size].

        Raises
        ------
        AudioError : it is shorter than a window.
        """
        frames, size = mfcc(samples, self.front_end), self.front_end.frames
        if len(frames) < size:
            raise AudioError(f"{len(frames)} frames; expected a window of {size} at least")
        return self._vectors(np.ascontiguousarray(frames.T)[np.newaxis], hop)

    def _vectors(self, x: F32, hop: int) -> F32:
        """[1, 64, T] → [windows, size], as `enrolled_model.build` pools a window; each layer is computed once."""
        (layer,) = self._session.run([LAYER], {"mfcc": x})
        sums = np.concatenate([np.zeros((len(layer[0]), 1)), layer[0, :, 0].cumsum(axis=1, dtype=np.float64)], axis=1)
        starts = np.arange(0, x.shape[2] - self.front_end.frames + 1, hop)[:, None] + STRETCH * np.arange(STRETCHES)
        means = (sums[:, starts + STRETCH] - sums[:, starts]) / STRETCH  # [channels, windows, STRETCHES]
        return np.asarray(means.transpose(1, 0, 2).reshape(len(starts), -1), np.float32)


def fingerprint(graph: Graph) -> str:
    """Of the weights: 16 hexadecimal digits that tell one trunk from another."""
    read = {name for node in graph.nodes for name in node.inputs}
    weights = b"".join(data for name, data in sorted(graph.initializers.items()) if name in read)
    return hashlib.sha256(weights).hexdigest()[:16]
