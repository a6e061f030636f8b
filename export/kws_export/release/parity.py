"""What a quantised file changes of everything that a user relies on, against the file that it was made from."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from kws_edge.arrays import F32, I64, Bools
from kws_edge.bench import machine
from kws_edge.errors import ModelError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import SCORES, Score
from kws_edge.model.selection import DEFAULT_TARGET, withheld
from kws_export.evaluation.metrics import Interval, bootstrap_interval
from kws_export.evaluation.scoring import Scored, Thresholds, calibrate, observe, withheld_shares

WITHOUT_WORD = ("other_words", "silence", "background")
"""The sets, of those that `score_sets` lists, of which as much as possible should be withheld."""


class Figure(NamedTuple):
    """One share, from 0 to 1, of both files; None where nothing is accepted, so that there is no accuracy."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times faster one pass of one window on one thread has become: the median, and half of all pairs."""

    ratio: float
    low: float
    high: float
    machine: str


@dataclass(frozen=True, slots=True)
class File:
    """A model file: its metadata, its size in bytes, and its answers on `validation`, `test` and other sets."""

    metadata: Metadata
    size: int
    sets: Mapping[str, Scored]


@dataclass(frozen=True, slots=True)
class Parity:
    """The comparison. Shares and accuracies are fractions.

    Attributes
    ----------
    before, after : the files' names.
    figures : of both files, each at thresholds that its own answers on the validation split give.
    accuracy_change : of the test split, after less before.
    interval : 95 % bootstrap interval of it, over test clips; both files see the same clips.
    same_answer : share of test clips that get the same class.
    same_decision : share that gets the same class, or is withheld by both, at the default score and target.
    ranks : Spearman's correlation of `alpha` (over all clips and classes), `vacuity` and `entropy` on the test split;
        None where a file gives all clips the same.
    entropy_shift : mean absolute difference of the entropy on the test split.
    sizes : of both files, in bytes.
    speed : after against before.
    """

    before: str
    after: str
    figures: tuple[Figure, ...]
    accuracy_change: float
    interval: Interval
    same_answer: float
    same_decision: float
    ranks: Mapping[str, float | None]
    entropy_shift: float
    sizes: tuple[int, int]
    speed: Speed

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        figures = [figure._asdict() for figure in self.figures]
        return {**asdict(self), "figures": figures, "interval": self.interval._asdict(), "sizes": list(self.sizes)}

    def require(self, max_loss: float) -> None:
        """Raise ModelError where the test accuracy falls by more than `max_loss`, a fraction."""
        if -self.accuracy_change > max_loss + 1e-9:
            accuracy = next(figure for figure in self.figures if figure.name == "accuracy, test")
            raise ModelError(
                f"{self.after}: test accuracy falls from {accuracy.before:.2%} to {accuracy.after:.2%}, by "
                f"{-100 * self.accuracy_change:.2f} points; expected at most {100 * max_loss:g}: calibrate on more "
                "clips, train with quantisation, or allow more"
            )


def compare(before: File, after: File, speed: Speed) -> Parity:
    """Compare two files' answers on the same clips, in the same order."""
    a, b = before.sets["test"], after.sets["test"]
    own = [calibrate(file.sets["validation"]) for file in (before, after)]
    figures = [_figures(file, thresholds) for file, thresholds in zip((before, after), own, strict=True)]
    decisions = [_decisions(x, t, after.metadata.score) for x, t in zip((a, b), own, strict=True)]
    return Parity(
        before=before.metadata.name,
        after=after.metadata.name,
        figures=tuple(Figure(name, share, figures[1][name]) for name, share in figures[0].items()),
        accuracy_change=_change(a.correct, b.correct),
        interval=bootstrap_interval(_change, a.correct, b.correct),
        same_answer=float((a.predicted == b.predicted).mean()),
        same_decision=float((decisions[0] == decisions[1]).mean()),
        ranks={name: _ranks(getattr(a, name), getattr(b, name)) for name in ("alpha", "vacuity", "entropy")},
        entropy_shift=float(np.abs(a.entropy - b.entropy).mean()),
        sizes=(before.size, after.size),
        speed=speed,
    )


def measure_speed(before: KeywordModel, after: KeywordModel, features: F32, rounds: int = 400) -> Speed:
    """Time both models in turn, so that what else the machine does meets both alike.

    Parameters
    ----------
    features : float32 [n, coefficients, frames]; each pass gets one of these windows.
    rounds : pairs of passes, after a tenth as many that do not count.
    """
    seconds = np.empty((rounds + rounds // 10, 2))
    for i, pair in enumerate(seconds):
        window = features[i % len(features)][None]
        for j in (0, 1) if i % 2 else (1, 0):
            start = time.perf_counter()
            (before, after)[j].run(window)
            pair[j] = time.perf_counter() - start
    low, ratio, high = np.quantile(seconds[rounds // 10 :, 0] / seconds[rounds // 10 :, 1], (0.25, 0.5, 0.75))
    return Speed(float(ratio), float(low), float(high), machine.describe().cpu)


def _decisions(scored: Scored, thresholds: Thresholds, score: Score) -> I64:
    """The class of each clip, -1 where it is withheld, at the default target."""
    point = next(point for point in thresholds[score] if point.target == DEFAULT_TARGET)
    return np.where(withheld(scored.score(score), point.threshold), -1, scored.predicted)


def _figures(file: File, thresholds: Thresholds) -> dict[str, float | None]:
    """Name → share, in the order of a report."""
    observed = observe(thresholds, file.sets["test"])
    shares = {name: withheld_shares(thresholds, file.sets[name]) for name in WITHOUT_WORD if name in file.sets}
    figures: dict[str, float | None] = {
        f"accuracy, {split}": file.sets[split].accuracy()["accuracy"] for split in ("test", "validation")
    }
    for score in SCORES:
        for i, point in enumerate(observed[score]):
            at = f"{score} {100 * point.target:.1f} %"
            figures[f"{at}: accepted accuracy"] = point.accepted_accuracy
            figures[f"{at}: coverage"] = point.coverage
            for name, withheld_share in shares.items():
                figures[f"{at}: {name.replace('_', ' ')} withheld"] = withheld_share[score][i]
    return figures


def _ranks(before: F32, after: F32) -> float | None:
    if before.min() == before.max() or after.min() == after.max():
        return None  # there is no order to compare
    return float(spearmanr(before.ravel(), after.ravel()).statistic)


def _change(before: Bools, after: Bools) -> float:
    return float(after.mean() - before.mean())
