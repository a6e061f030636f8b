"""What is run: one decision, split into its stages. A new kind of row is a class here and its name in `WORKLOADS`."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.wav import as_wav
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.session import Outputs
from kws_edge.stream.framing import check_hop
from kws_edge.stream.incremental import has_steps, step_file
from kws_edge.stream.spotter import Spotter

WARM_UP: Final = 2.0
"""Seconds of a stream before its first hop that counts: by then there is a window, and the network runs."""


class Stages(NamedTuple):
    """Where the time of one decision went, seconds.

    decode : bytes of a file to samples. 0 in a stream, which gets samples.
    features : samples to the network's input: levels, MFCC, padding.
    network : one forward pass, the evidential head in it, from arrays to arrays.
    decision : from the network's outputs to an answer.
    """

    decode: float
    features: float
    network: float
    decision: float


class LastRun:
    """When the network last ran, by `time.perf_counter`, and how often it has."""

    began = ended = 0.0
    count = 0

    def time(self, run: Callable[[], Outputs]) -> Outputs:
        """Run it, and note when."""
        self.began = time.perf_counter()
        outputs = run()
        self.ended = time.perf_counter()
        self.count += 1
        return outputs


class TimedModel(KeywordModel):
    """A model that notes when its network runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As `KeywordModel`."""
        self.network = LastRun()
        super().__init__(*args, **kwargs)

    def run(self, features: F32) -> Outputs:
        """As `KeywordModel.run`."""
        return self.network.time(lambda: super(TimedModel, self).run(features))


class TimedSpotter(Spotter):
    """A stream that notes when its network runs, be it on a whole window or on the new frames alone."""

    def __init__(self, model: KeywordModel, hop: float) -> None:
        """As `Spotter`."""
        self.network = LastRun()
        super().__init__(model, hop=hop)

    def _ask(self, frames: F32, new: int) -> Outputs:
        return self.network.time(lambda: super(TimedSpotter, self)._ask(frames, new))


class Workload(Protocol):
    """A thing to do over and over.

    Attributes
    ----------
    audio : seconds of sound that one step decides on.
    file : the ONNX file whose graph each step runs, once.
    shape : of its input `mfcc`.
    """

    audio: float
    file: Path
    shape: tuple[int, int, int]

    def step(self) -> Stages:
        """Do it once, and say where the time went."""

    def is_warm(self) -> bool:
        """Whether the steps from here on are alike."""


class ClipWorkload:
    """Clips of a second, 16-bit WAV in memory, decided on together as by `KeywordModel.classify_batch`."""

    def __init__(self, model: TimedModel, batch: int, hop: float) -> None:
        """Make the clips, 1 to `session.MAX_BATCH` of them; `hop` is for streams."""
        fe = model.metadata.front_end
        self._model, self.file = model, model.path
        self.audio, self.shape = float(batch), (batch, fe.n_mfcc, fe.frames)
        self._clips = [as_wav(sound) for sound in islice(restless_noise(1.0), batch)]

    def step(self) -> Stages:
        """Decide on the batch once."""
        start = time.perf_counter()
        samples = np.stack([load(clip).samples for clip in self._clips])
        decoded = time.perf_counter()
        self._model.classify_batch(samples)
        end = time.perf_counter()
        network = self._model.network
        return Stages(decoded - start, network.began - decoded, network.ended - network.began, end - network.ended)

    def is_warm(self) -> bool:
        """At once."""
        return True


class StreamWorkload:
    """A live stream, hop after hop through a `Spotter`. The network looks at every hop: the most that it can cost."""

    def __init__(self, model: TimedModel, batch: int, hop: float) -> None:
        """Start it; `batch` is for clips."""
        fe, steps = model.metadata.front_end, has_steps(model)
        self._spotter, self._chunks = TimedSpotter(model, hop), restless_noise(hop)
        self.audio, self.file = hop, step_file(model) if steps else model.path
        self.shape = 1, fe.n_mfcc, check_hop(hop, fe) // fe.hop if steps else fe.frames

    def step(self) -> Stages:
        """Push the next hop. Where the network does not look at it, its time is 0."""
        network, chunk = self._spotter.network, next(self._chunks)
        count, start = network.count, time.perf_counter()
        self._spotter.push(chunk)
        end = time.perf_counter()
        if network.count == count:
            return Stages(0.0, end - start, 0.0, 0.0)
        return Stages(0.0, network.began - start, network.ended - network.began, end - network.ended)

    def is_warm(self) -> bool:
        """After `WARM_UP`."""
        return self._spotter.time > WARM_UP


WORKLOADS: Final[Mapping[str, Callable[[TimedModel, int, float], Workload]]] = {
    "clip": ClipWorkload,
    "stream": StreamWorkload,
}
"""Name of a task → what it runs, made from a model, a batch size and a hop in seconds."""


def restless_noise(seconds: float) -> Iterator[F32]:
    """Noise without end, float32 chunks of so many seconds, which stands out of its own floor twice in a second."""
    rng = np.random.default_rng(1)
    n, position = round(seconds * SAMPLE_RATE), 0
    while True:
        at = position + np.arange(n)
        loud = np.where(at % (SAMPLE_RATE // 2) < SAMPLE_RATE // 4, 0.1, 0.001)
        yield (loud * rng.standard_normal(n)).astype(np.float32)
        position += n


def load_timed(model: str | os.PathLike[str] | None, provider: str, threads: int) -> TimedModel:
    """Load a model to be measured; it runs on that provider, or ProviderError is raised."""
    timed = TimedModel.load(model, provider=provider, strict=True, threads=threads)
    assert isinstance(timed, TimedModel)  # `load` makes what it is called on
    return timed
