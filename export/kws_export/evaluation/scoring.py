"""What a model file answers on a set of clips, as arrays: the raw material of calibration, cards and reports."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kws_edge.arrays import F32, F64, I64, Bools
from kws_edge.files import replace_file
from kws_edge.model import evidence
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import SCORES
from kws_edge.model.selection import OperatingPoint, withheld
from kws_export.evaluation.answers import ClipAnswers
from kws_export.evaluation.metrics import accuracy_interval
from kws_export.evaluation.thresholds import conservative_operating_point, operating_point, point_at

TARGETS = (0.99, 0.995, 0.999)

Thresholds = dict[str, tuple[OperatingPoint, ...]]
"""Score → its operating points, rising targets; the form in which metadata hold them."""


@dataclass(frozen=True, slots=True)
class Scored(ClipAnswers):
    """A model's outputs on n clips, K classes.

    Attributes
    ----------
    truth, predicted : int64 [n] indices into the model's labels; truth is negative for a clip of none of them.
    alpha : float32 [n, K].
    vacuity, entropy : float32 [n].
    """

    truth: I64
    predicted: I64
    alpha: F32
    vacuity: F32
    entropy: F32

    @property
    def probability(self) -> F64:
        """p̂, float64 [n, K]."""
        return evidence.probability(self.alpha.astype(np.float64))

    def accuracy(self) -> dict[str, float]:
        """Accuracy with its 95 % Clopper-Pearson interval, as the metadata hold it."""
        hits, n = int(self.correct.sum()), len(self.truth)
        low, high = accuracy_interval(hits, n)
        return {"accuracy": hits / n, "low": low, "high": high, "clips": n}

    def save(self, path: Path) -> None:
        """Keep the arrays in one .npz file, for reports."""
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: getattr(self, name) for name in self.__slots__})
        replace_file(path, buffer.getvalue())


def score_clips(model: KeywordModel, features: F32, truth: I64, batch: int = 64) -> Scored:
    """Run a model over features float32 [n, coefficients, frames] with their true classes int64 [n]."""
    parts = [model.run(features[i : i + batch]) for i in range(0, len(features), batch)]
    return Scored(
        truth=truth,
        predicted=np.concatenate([p.labels for p in parts]),
        alpha=np.concatenate([p.alpha for p in parts]),
        vacuity=np.concatenate([p.vacuity for p in parts]),
        entropy=np.concatenate([p.entropy for p in parts]),
    )


METHOD = (
    "shown: the largest coverage whose accepted accuracy reaches the target with 95 % confidence for clips like these; "
    "where so few clips cannot show it: the largest coverage that reaches it on them, with no threshold above that "
    "of a lower target"
)
"""How `calibrate` chooses, for the metadata and the card."""


def calibrate(validation: Scored) -> Thresholds:
    """For both scores, a threshold for each of TARGETS, with the interval of its accepted accuracy.

    The conservative rule (`conservative_operating_point`) chooses where it can; such a point `is_shown`. The
    others are the best guess that the clips allow, by the paper's rule.
    """
    return {score: _promises(validation.correct, validation.score(score)) for score in SCORES}


def _promises(correct: Bools, uncertainty: F32) -> tuple[OperatingPoint, ...]:
    shown = [conservative_operating_point(correct, uncertainty, target) for target in TARGETS]
    points: list[OperatingPoint] = []
    for i, target in enumerate(TARGETS):
        if shown[i].accepted:  # what is shown for a higher target is shown for this one too
            threshold = max(point.threshold for point in shown[i:])
        else:
            guess = operating_point(correct, uncertainty, target).threshold
            threshold = min([guess, *(point.threshold for point in points)])
        points.append(with_interval(point_at(correct, uncertainty, threshold, target)))
    return tuple(points)


def with_interval(point: OperatingPoint) -> OperatingPoint:
    """The point with the 95 % interval of its accepted accuracy."""
    if point.accepted_accuracy is None:
        return point
    low, high = accuracy_interval(round(point.accepted_accuracy * point.accepted), point.accepted)
    return replace(point, low=low, high=high)


def calibrated(metadata: Metadata, thresholds: Thresholds, scored: Mapping[str, Scored]) -> Metadata:
    """Metadata with these thresholds, which the validation clips gave, and with the accuracy on both splits."""
    return replace(
        metadata,
        thresholds=thresholds,
        calibration={
            "split": "validation",
            "clips": len(scored["validation"].truth),
            "method": METHOD,
        },
        accuracy={split: scored[split].accuracy() for split in ("validation", "test")},
    )


def observe(thresholds: Thresholds, scored: Scored) -> Thresholds:
    """What those thresholds give on other clips, such as the test split."""
    return {
        score: tuple(
            with_interval(point_at(scored.correct, scored.score(score), p.threshold, p.target))
            for p in thresholds[score]
        )
        for score in SCORES
    }


def withheld_shares(thresholds: Thresholds, scored: Scored) -> dict[str, tuple[float, ...]]:
    """Which share of clips each threshold withholds; for clips that hold no word of the model, more is better."""
    return {
        score: tuple(float(withheld(scored.score(score), p.threshold).mean()) for p in thresholds[score])
        for score in SCORES
    }
