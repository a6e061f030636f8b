"""Search a recording, mostly one longer than the network's input, with the decision rule of streams.

Windows a tenth of a second apart, the first and last of them half beyond the recording's ends, where it is taken to be
quiet. What each says is averaged over the model's smoothing, those without sound counting as no evidence; and the
answer is that of the least uncertain mean. One window of twenty is easily sure of a word that is none; a few in a row
are not. The threshold is that for clips; where the model was calibrated on streams and the accuracy asked for is that
of `DEFAULT_TARGET` or higher, also those for streams must hold, each on its own score.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.errors import ModelError
from kws_edge.model import evidence
from kws_edge.model.answers import answers, rank
from kws_edge.model.clips import STEP_SECONDS, cut, window_frames
from kws_edge.model.metadata import Metadata
from kws_edge.model.prediction import Prediction, why_withheld
from kws_edge.model.score import SCORES, Score
from kws_edge.model.selection import DEFAULT_TARGET, WITHHOLD_ALL, OperatingPoint
from kws_edge.model.session import MAX_BATCH, Outputs
from kws_edge.model.variants import get_variant
from kws_edge.text import shown

SMOOTHING: Final = 0.3
"""Seconds, for a model that was not calibrated on streams."""
MAX_SMOOTHING: Final = 0.9
"""Seconds; shorter than a window: a mean over more would be of windows that have nothing in common."""
_BEYOND: Final = 0.5  # s


def search(
    run: Callable[[F32], Outputs],
    metadata: Metadata,
    blocks: Iterable[F32],
    score: Score,
    point: OperatingPoint,
    progress: Callable[[float], None] = lambda seconds: None,
) -> Prediction:
    """The answer for a recording.

    Parameters
    ----------
    run, metadata : the network, as `KeywordModel.run`, and what its file says of it.
    blocks : float32 [n] each, n at least 1, mono at 16 kHz, of any length together; at most a window and a block of
        them is held.
    score, point : the uncertainty that decides, and the operating point of clips.
    progress : called now and then with the seconds that are done.
    """
    smoothing, limits = _decided_by(metadata, score, point)
    n = max(1, round(smoothing / STEP_SECONDS))
    K = len(metadata.labels)
    nothing = np.full(K, 1 / K, np.float32), 1.0
    past: deque[tuple[F32, float]] = deque([nothing] * n, n)
    lately: deque[tuple[Prediction, bool]] = deque(maxlen=n // 2 + 1)  # the answers, and whether they were clipped
    length = 0  # samples of the recording
    best: Prediction | None = None

    def padded() -> Iterator[F32]:
        nonlocal length
        beyond, last = round(_BEYOND * SAMPLE_RATE), np.zeros(1, np.float32)
        for i, block in enumerate(blocks):
            if i == 0:
                yield np.repeat(block[:1], beyond)
            last, length = block[-1:], length + len(block)
            yield block
        yield np.repeat(last, beyond)

    windows = cut(padded(), metadata.front_end, window_frames(metadata))
    while batch := list(islice(windows, MAX_BATCH)):
        for window, seen in zip(batch, answers(run, metadata, batch, score, point), strict=True):
            lately.append((seen, window.is_clipped))
            past.append(nothing if seen.guess is None else (evidence.probability(seen.alpha), seen.vacuity))
            p = np.stack([probability for probability, _ in past]).mean(axis=0)
            u = float(np.mean([vacuity for _, vacuity in past]))
            middle, clipped = lately[0]
            found = _mean(middle, p, u, limits, metadata, clipped=clipped)
            if best is None or rank(found, score) < rank(best, score):
                best = found
        progress(max(0.0, min(batch[-1].end - _BEYOND, length / SAMPLE_RATE)))
    assert best is not None  # with what is added at its ends, any recording holds a window
    end = min(best.end - _BEYOND, length / SAMPLE_RATE)
    return replace(best, start=max(0.0, best.start - _BEYOND), end=end)


def beginning(blocks: Iterator[F32], most: int) -> tuple[list[F32], bool]:
    """The first blocks, up to where there are more than `most` samples, and whether there are."""
    head: list[F32] = []
    total = 0
    for block in blocks:
        head.append(block)
        total += len(block)
        if total > most:
            return head, True
    return head, False


def whole_of(head: list[F32], rest: Iterator[F32]) -> Iterator[F32]:
    """What `beginning` took, and the rest."""
    return (block for block in chain(head, rest) if len(block))


def _decided_by(metadata: Metadata, score: Score, point: OperatingPoint) -> tuple[float, dict[Score, float]]:
    """Smoothing, and the threshold of each score that has one, first that of the score that was asked for."""
    limits: dict[Score, float] = {score: point.threshold}
    settings = (metadata.stream or {}).get("settings")
    if not isinstance(settings, Mapping):
        return SMOOTHING, limits
    smoothing, thresholds = settings.get("smoothing", SMOOTHING), settings.get("thresholds")
    of_stream = (
        {name: thresholds[name] for name in SCORES if name in thresholds} if isinstance(thresholds, Mapping) else {}
    )
    checked = [("smoothing", smoothing, MAX_SMOOTHING)]
    checked += [("threshold", value, -WITHHOLD_ALL) for value in of_stream.values()]
    for name, value, most in checked:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -most <= value <= most:
            raise ModelError(f"model {metadata.name}: stream: {name} {shown(value)}; expected a number up to {most:g}")
    if point.target >= DEFAULT_TARGET:
        for name, value in of_stream.items():
            limits[name] = min(limits.get(name, math.inf), float(value))
    return float(smoothing), limits


def _mean(
    middle: Prediction, p: F32, vacuity: float, limits: Mapping[Score, float], metadata: Metadata, *, clipped: bool
) -> Prediction:
    """What the mean of some windows says, at the time of the one in their middle, which may be clipped.

    Its score is that whose threshold withholds the label, or else the first of the limits.
    """
    entropy = float(evidence.entropy_of(p))
    values: dict[Score, float] = {"vacuity": vacuity, "entropy": entropy}
    above: list[Score] = [] if middle.guess is None else [name for name in limits if not values[name] <= limits[name]]
    score = next(iter(above or limits))
    decided: dict[str, Any] = {"score": score, "threshold": limits[score]}
    if middle.guess is None:
        return replace(middle, **decided)
    guess = metadata.labels[int(p.argmax())]
    reason = why_withheld(guess, uncertain=bool(above), clipped=clipped)
    label = guess if reason is None else None
    alpha = evidence.dirichlet(p, vacuity, get_variant(metadata.variant))
    numbers: dict[str, Any] = {"alpha": alpha, "vacuity": vacuity, "entropy": entropy, **decided}
    return replace(middle, label=label, guess=guess, probability=float(p.max()), reason=reason, **numbers)
