"""The figures of a run: a row for each quantity, set of clips, score, target and rule.

Quantities are fractions from 0 to 1, except aurc and nll (nats) and accepted (a count). A figure is NaN where there
is none: the accepted accuracy of a rule that accepts nothing, an AUROC of errors without errors.

Rules say how a threshold was chosen for a target:

paper : on the very clips that are looked at, by the paper's protocol (largest coverage that reaches the target).
validation : the same, on the validation split; the score `both` is the rule of two thresholds.
conservative : on the validation split, with `thresholds.conservative_operating_point`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

from kws_edge.errors import SettingError
from kws_edge.model.score import SCORES
from kws_edge.model.selection import OperatingPoint
from kws_export.evaluation import metrics
from kws_export.evaluation.gaps import Gaps
from kws_export.evaluation.score_file import KeptAnswers, RunScores
from kws_export.evaluation.score_sets import NO_WORD, SNRS, noisy_name
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import (
    Choice,
    TwoThresholds,
    promise_in_halves,
    two_thresholds,
)
from kws_export.evaluation.thresholds import conservative_operating_point, operating_point, point_at

OUTSIDE = ("other_words", "unknown", "silence", "background", "sounds", "speech")
NOISY = tuple(noisy_name(snr) for snr in SNRS)
CHOICES: Mapping[str, Choice] = {
    "validation": operating_point,
    "conservative": conservative_operating_point,
}
"""Rule → how it chooses a threshold on the validation split."""


class Key(NamedTuple):
    """What a figure is of; empty where a part does not apply. The score is entropy, vacuity or both."""

    quantity: str
    on: str
    score: str = ""
    target: float | None = None
    rule: str = ""


Figures = dict[Key, float]


def figures(run: RunScores) -> Figures:
    """All figures of one run, from whatever sets it was scored on; validation and test it needs.

    Raises
    ------
    SettingError : it has no answers on validation or test.
    """
    if missing := {"validation", "test"} - run.sets.keys():
        raise SettingError(f"{run.run}: not scored on {', '.join(sorted(missing))}; run `kws-export score` again")
    out: Figures = {}
    for name, answers in sorted(run.sets.items()):
        if (answers.truth != NO_WORD).all():
            out[Key("accuracy", name)] = float(answers.correct.mean())
    out.update(_ranking(run.sets["test"]))
    out.update(_probabilities(run.sets["test"]))
    out.update(_operating_points(run))
    out.update(_outside(run))
    out.update(_theory(run))
    out.update(_halves(run.sets["test"]))
    return out


def _ranking(test: KeptAnswers) -> Iterator[tuple[Key, float]]:
    has_both = test.correct.any() and not test.correct.all()
    orders = (test.entropy, test.vacuity)
    alike = all(np.ptp(u) > 0 for u in orders)  # a score that is the same for all clips orders none
    yield Key("rank_correlation", "test"), float(stats.spearmanr(*orders).statistic) if alike else np.nan
    for score in SCORES:
        u = test.score(score)
        yield Key("aurc", "test", score), metrics.aurc(test.correct, u)
        yield Key("auroc_errors", "test", score), metrics.auroc_errors(test.correct, u) if has_both else np.nan
        yield Key("saturated", "test", score), float((u == 1).mean())


def _probabilities(test: KeptAnswers) -> Iterator[tuple[Key, float]]:
    """Calibration error, Brier score and negative log-likelihood, as in metrics.py, from what is kept of p̂."""
    if test.p_truth is None or test.p_predicted is None or test.sum_p2 is None:
        raise SettingError("no probabilities of the test split; run `kws-export score` again")
    p = test.p_truth.astype(np.float64)
    yield Key("ece", "test"), metrics.expected_calibration_error(test.correct, test.p_predicted)
    yield Key("brier", "test"), float((1 - 2 * p + test.sum_p2).mean())
    yield Key("nll", "test"), float(-np.log(np.maximum(p, np.finfo(np.float64).eps)).mean())


def _theory(run: RunScores) -> Iterator[tuple[Key, float]]:
    """The gap between the losses on the test split's α, where the logits were kept."""
    if run.sets["test"].logits is not None:
        gaps = Gaps.of(run.sets["test"], run.variant)
        for quantity, value in gaps.summary().items():
            yield Key(quantity, "test"), value


def _operating_points(run: RunScores) -> Iterator[tuple[Key, float]]:
    validation, test = run.sets["validation"], run.sets["test"]
    words = {name: run.sets[name] for name in ("validation", "test", *NOISY) if name in run.sets}
    for target in TARGETS:
        for score in SCORES:
            point = operating_point(test.correct, test.score(score), target)
            yield from _of_point(point, "test", score, "paper")
            for rule, choose in CHOICES.items():
                threshold = choose(validation.correct, validation.score(score), target).threshold
                yield Key("threshold", "validation", score, target, rule), threshold
                for name, answers in words.items():
                    point = point_at(answers.correct, answers.score(score), threshold, target)
                    yield from _of_point(point, name, score, rule)
        pair = chosen_pair(run, target)
        for name, answers in words.items():
            kept = pair.accepted(answers.entropy, answers.vacuity)
            # As a score of 0 for what is accepted and 1 for the rest, the pair is a rule of one threshold.
            yield from _of_point(point_at(answers.correct, ~kept, 0.5, target), name, "both", "validation")


def _of_point(point: OperatingPoint, on: str, score: str, rule: str) -> Iterator[tuple[Key, float]]:
    accuracy = point.accepted_accuracy
    key = partial(Key, on=on, score=score, target=point.target, rule=rule)
    yield key("accepted_accuracy"), np.nan if accuracy is None else accuracy
    yield key("coverage"), point.coverage
    yield key("total_accuracy"), point.total_accuracy
    yield key("accepted"), point.accepted


def chosen_pair(run: RunScores, target: float) -> TwoThresholds:
    """The two thresholds that the validation split gives for a target."""
    v = run.sets["validation"]
    return two_thresholds(v.correct, v.entropy, v.vacuity, target)


def _outside(run: RunScores) -> Iterator[tuple[Key, float]]:
    validation, test = run.sets["validation"], run.sets["test"]
    thresholds = {
        (score, target): operating_point(validation.correct, validation.score(score), target).threshold
        for score in SCORES
        for target in TARGETS
    }
    pairs = {target: chosen_pair(run, target) for target in TARGETS}
    for name in (name for name in OUTSIDE if name in run.sets):
        answers = run.sets[name]
        for score in SCORES:
            yield Key("auroc", name, score), metrics.auroc_ood(test.score(score), answers.score(score))
            for target in TARGETS:
                kept = point_at(answers.correct, answers.score(score), thresholds[score, target], target)
                yield Key("withheld", name, score, target, "validation"), 1 - kept.coverage
        for target, pair in pairs.items():
            accepted = pair.accepted(answers.entropy, answers.vacuity)
            yield Key("withheld", name, "both", target, "validation"), float(1 - accepted.mean())


def _halves(test: KeptAnswers) -> Iterator[tuple[Key, float]]:
    for score in SCORES:
        for target in TARGETS:
            for rule, choose in CHOICES.items():
                seen = promise_in_halves(choose, test.correct, test.score(score), target)
                for quantity, value in seen._asdict().items():
                    yield Key(f"halves_{quantity}", "test", score, target, rule), value
