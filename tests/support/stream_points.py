"""Recordings as a network may have seen them, and points of a trade-off curve, made by hand."""

import numpy as np
import tiny_model
from tiny_model import METADATA

from kws_edge.model import evidence
from kws_edge.model.evidence import no_evidence
from kws_edge.model.variants import VARIANTS
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.points import Point
from kws_edge.tuning.soundscape import Word
from kws_edge.tuning.traced import Traced

SETTINGS = StreamSettings({"vacuity": 0.5}, smoothing=0.1)


def recording(name: str, *seen: tuple[str, float], said: bool = True) -> Traced:
    """One window each 3 s in which the network sees a label, with so much vacuity; `said`, if the word is there."""
    n = 30 * len(seen)
    alpha = np.tile(no_evidence(3, "softmax"), (n, 1))
    words = []
    for i, (label, vacuity) in enumerate(seen):
        k = METADATA.labels.index(label)
        at = 30 * i + 15
        alpha[at : at + 3, k] = 3 / vacuity - 3
        words.append(Word(label, at / 10 - 0.5, at / 10))
    hops = Hops(
        hop=0.1,
        time=0.1 * np.arange(1, n + 1, dtype=np.float64),
        alpha=alpha,
        vacuity=evidence.vacuity(alpha, VARIANTS["softmax"]),
        level=np.full(n, -60, np.float32),
        noise=np.full(n, -60, np.float32),
        clipped=np.zeros(n, np.bool_),
        heard=np.ones(n, np.bool_),
    )
    return Traced(name, hops, tuple(words) if said else ())


def point(hits: int, false_accepts: int, wrong: int = 0, settings: StreamSettings = SETTINGS) -> Point:
    words = StreamReport(100.0, hits=hits, wrong=wrong, missed=20 - hits - wrong)
    return Point(settings, words, {"n": StreamReport(3600.0, false_accepts=false_accepts)})


def tone(word: str, shift: float = 0.0) -> np.ndarray:
    """So long that the model is sure of it."""
    t = np.arange(round(1.2 * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * (tiny_model.TONES[word] + shift) * t)).astype(np.float32)
