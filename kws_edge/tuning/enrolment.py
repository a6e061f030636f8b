"""Enrol a word from a few takes of one voice: templates instead of training.

A trained network's third block says, every 10 ms, what sounds there are around. Over the window, in five stretches of
0.15 s, that is a vector of 5 numbers for each channel. It is brought to a space in which other speech has no preferred
direction (whitening), and to length 1; there the cosine c of the angle to the mean of the takes says how alike a window
is. The evidence for the word is softplus(SLOPE (c - t)), which is near 0 for what is far from the takes, so that the
vacuity is near 1; there is no evidence for anything else.

The threshold t is set by the cosines of other speech, that of the vectors shipped in `BACKGROUND`: beyond a high
quantile they thin out about exponentially, and t lies so many times the mean excess above it, as was measured to give
about one false accept an hour (`bench/enrolment.py`). All of that belongs to the weights of one trunk.
Source of the tail: S. Coles, "An Introduction to Statistical Modeling of Extreme Values", 2001, chapter 4, at shape 0.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from kws_edge.arrays import F32, F64
from kws_edge.errors import AudioError, ModelError, SettingError
from kws_edge.files import read_arrays
from kws_edge.model.evidence import softplus
from kws_edge.model.features import FrontEnd, mfcc
from kws_edge.model.graph_edit import Graph, Node, float_value, tensor
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import WAKE_WORD, Metadata
from kws_edge.model.onnx_file import with_metadata
from kws_edge.model.runtime import CPU, open_session
from kws_edge.model.selection import DEFAULT_TARGET, OperatingPoint
from kws_edge.model.shipped import MODELS, shipped_models
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.soundscape import ROOM_LEVEL, speech_bounds

TRUNK: Final = "stream"
LAYER: Final = "block3_1_relu"
"""Of the trunk: float32 [batch, channels, 1, 76] for a window of 128 frames."""
STRETCHES: Final = 5
BACKGROUND: Final = MODELS / "enrol.npz"
"""Other speech: `mean` float32 [size] and `whitening` float16 [size, m] of the vectors, `vectors` int8 [n, m], the
whitened ones of length 1 times 127, `reach`, what the threshold is set by, and `trunk`, whose vectors they are
(`fingerprint`)."""

FEWEST, MOST = 3, 10
"""Takes."""
TAIL: Final = 0.03
"""Of the vectors of other speech."""
SLOPE: Final = 40.0
"""Of the evidence in the cosine: from 1 % to 99 % of a unit within a tenth on each side of the threshold."""

METHOD: Final = "so many times the mean excess above a quantile of the likeness of other speech"

_STRETCH = 15  # frames
_SHIFTS = range(-24, 25, 4)  # frames by which a take is moved, to lie as the others do
_ROUNDS = 3


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
            return cls(
                file["mean"].astype(np.float32),
                file["whitening"].astype(np.float32),
                file["vectors"].astype(np.float32) / np.float32(127),
                float(file["reach"]),
                str(file["trunk"]),
            )
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
        """[1, 64, T] → [windows, size], as the graph of `build` pools a window; each layer is computed once."""
        (layer,) = self._session.run([LAYER], {"mfcc": x})
        sums = np.concatenate([np.zeros((len(layer[0]), 1)), layer[0, :, 0].cumsum(axis=1, dtype=np.float64)], axis=1)
        starts = np.arange(0, x.shape[2] - self.front_end.frames + 1, hop)[:, None] + _STRETCH * np.arange(STRETCHES)
        means = (sums[:, starts + _STRETCH] - sums[:, starts]) / _STRETCH  # [channels, windows, STRETCHES]
        return np.asarray(means.transpose(1, 0, 2).reshape(len(starts), -1), np.float32)


def fingerprint(graph: Graph) -> str:
    """Of the weights: 16 hexadecimal digits that tell one trunk from another."""
    read = {name for node in graph.nodes for name in node.inputs}
    weights = b"".join(data for name, data in sorted(graph.initializers.items()) if name in read)
    return hashlib.sha256(weights).hexdigest()[:16]


def take_windows(take: F32, front_end: FrontEnd) -> F32:
    """The windows of a take as a stream would show it, around its middle: float32 [n] → float32 [13, 64, 128].

    A take that is longer than a window is seen around its loudest part.

    Raises
    ------
    AudioError : there is nothing in it.
    """
    size = front_end.window + (front_end.frames - 1) * front_end.hop
    level = np.abs(take - take.mean())
    if not level.any():
        raise AudioError("a take of silence; expected one word in each")
    start, end = speech_bounds(take)
    middle = (start + end) // 2
    if end - start > size:
        sums = np.concatenate([[0.0], np.cumsum(level, dtype=np.float64)])
        middle = int(np.argmax(sums[size:] - sums[:-size])) + size // 2
    room = np.float32(ROOM_LEVEL) * np.random.default_rng(0).standard_normal(3 * size, np.float32)
    first = len(room) // 2 - middle
    low, high = max(0, -first), min(len(take), len(room) - first)
    room[first + low : first + high] += take[low:high]
    begin = len(room) // 2 - size // 2
    starts = [begin + shift * front_end.hop for shift in _SHIFTS]
    return np.stack([mfcc(room[i : i + size], front_end).T for i in starts]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Enrolled:
    """What came of takes.

    Attributes
    ----------
    template : float32 [m], of length 1.
    threshold : the cosine above which a window counts as the word. Takes of several voices, or of more than the word,
        have a mean that much speech is like; it may then lie above 1, which no window reaches.
    cosines : of each take to the mean of the others: those below the threshold would have been missed.
    """

    template: F32
    threshold: float
    cosines: tuple[float, ...]

    @property
    def missed(self) -> tuple[bool, ...]:
        """Of each take, whether it would have been missed by a model of the others."""
        return tuple(cosine <= self.threshold for cosine in self.cosines)

    @property
    def hears(self) -> bool:
        """Whether a model of these takes would hear the word at all: not where it would have missed most of them."""
        return sum(self.missed) * 2 <= len(self.cosines)


def enrol(takes: Sequence[F32], embedding: Embedding, background: Background) -> Enrolled:
    """Make a template of takes, float32 [n] each, mono at 16 kHz, one word in each, of one voice.

    Raises
    ------
    SettingError : fewer than `FEWEST` takes, or more than `MOST`.
    AudioError : as `take_windows`.
    ModelError : the background is that of another trunk.
    """
    if background.trunk != embedding.fingerprint:
        raise ModelError(
            f"{BACKGROUND.name} is of other weights than {TRUNK}; expected what `python bench/enrolment.py background` "
            "makes of these"
        )
    if not FEWEST <= len(takes) <= MOST:
        raise SettingError(f"{len(takes)} takes; expected {FEWEST} to {MOST} of one voice")
    shifted = [background.whitened(embedding(take_windows(take, embedding.front_end))) for take in takes]
    each = _aligned(shifted)
    template = _mean(each)
    others = [_mean(each[:i] + each[i + 1 :]) for i in range(len(each))]
    cosines = tuple(float((vectors @ other).max()) for vectors, other in zip(shifted, others, strict=True))
    return Enrolled(template, background.threshold(template), cosines)


def _aligned(shifted: Sequence[F32]) -> list[F32]:
    """Of each take's windows those in which it lies as the others do: that most like the others' mean, and its two
    neighbours. A word's middle is not known to a tenth of a second, and where it is decides what the stretches hold."""
    at = [len(vectors) // 2 for vectors in shifted]
    for _ in range(_ROUNDS):
        for i, vectors in enumerate(shifted):
            other = _mean([v[[k]] for j, (v, k) in enumerate(zip(shifted, at, strict=True)) if j != i])
            at[i] = int(np.argmax(vectors @ other))
    return [vectors[max(0, k - 1) : k + 2] for vectors, k in zip(shifted, at, strict=True)]


def _mean(vectors: Sequence[F32]) -> F32:
    mean: F64 = np.mean([v.mean(axis=0) for v in vectors], axis=0, dtype=np.float64)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def build(enrolled: Enrolled, background: Background, metadata: Metadata) -> bytes:
    """The bytes of the ONNX file: the trunk, the template and the head of the variant in `metadata`, of two labels."""
    graph = Graph.parse(shipped_models()[TRUNK].read_bytes())
    K = len(metadata.labels)
    weights: dict[str, Any] = {
        "enrol_whitening": background.whitening,
        "enrol_offset": -(background.mean @ background.whitening),
        "enrol_tiny": np.float32(1e-6),
        "enrol_template": SLOPE * np.stack([enrolled.template, np.zeros_like(enrolled.template)]),
        "enrol_bias": np.array([-SLOPE * enrolled.threshold, -SLOPE], np.float32),
        "k": np.float32(K), "minus_one_over_log_k": np.float32(-1 / np.log(K)),
    }  # fmt: skip
    graph.initializers |= {name: tensor(name, value) for name, value in weights.items()}
    graph.nodes = [
        *graph.before(LAYER),
        Node.make("AveragePool", [LAYER], "stretches", kernel_shape=[1, _STRETCH], strides=[1, _STRETCH]),
        Node.make("Flatten", ["stretches"], "vector", axis=1),
        Node.make("Gemm", ["vector", "enrol_whitening", "enrol_offset"], "whitened"),
        Node.make("ReduceL2", ["whitened"], "length", axes=[1], keepdims=1),
        Node.make("Max", ["length", "enrol_tiny"], "length_floor"),
        Node.make("Div", ["whitened", "length_floor"], "direction"),
        Node.make("Gemm", ["direction", "enrol_template", "enrol_bias"], "logits", transB=1),
        *graph.after("logits"),
    ]
    graph.outputs["alpha"] = float_value("alpha", "batch", K)
    return with_metadata(graph.assemble(metadata.name), metadata)


def describe(name: str, word: str, enrolled: Enrolled, trunk: Metadata) -> Metadata:
    """What the file says of itself."""
    at = float(2 / (2 + softplus(0.0)))  # the vacuity where the cosine is at the threshold
    settings = StreamSettings({"vacuity": at}, smoothing=0.0, hysteresis=0.1)
    takes = len(enrolled.cosines)
    found = takes - sum(enrolled.missed)
    made = {"purpose": WAKE_WORD, "method": "template of takes", "takes": takes, "trunk": trunk.name, "layer": LAYER}
    right = 1.0 if found else None
    point = OperatingPoint(DEFAULT_TARGET, at, right, found / takes, found / takes, found, takes)
    return replace(
        trunk,
        name=name,
        labels=(word, "_unknown_"),
        score="vacuity",
        thresholds={"vacuity": (point,)},
        calibration={"split": "the takes, each by the others", "clips": takes, "method": METHOD},
        training=made,
        accuracy={},
        stream={"settings": settings.to_dict(), "calibration": {"method": METHOD, "words_chosen": [word]}},
        padding="same",
    )
