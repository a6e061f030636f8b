"""A comparison of runs: the figures of each, what varies between seeds, and what can be told.

Tables take their cells from these figures and nothing else, and `figures.csv` holds them all.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kws_edge.errors import SettingError
from kws_edge.model.score import SCORES, Score
from kws_edge.model.selection import TOLERANCE, withheld
from kws_edge.model.variants import VARIANTS
from kws_export.evaluation import metrics
from kws_export.evaluation.score_file import RunScores
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import (
    Difference,
    accepted_accuracy_difference,
    accepted_interval,
    coverage_difference,
)
from kws_export.evaluation.thresholds import operating_point
from kws_export.report.figures import Figures, Key, chosen_pair, figures
from kws_export.training.recipe import Recipe

if TYPE_CHECKING:
    from kws_export.report.loss_times import LossTimes


class Estimate(NamedTuple):
    """A figure over the seeds of a variant: mean and two sample standard deviations; None for a single seed."""

    mean: float
    two_sigma: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate | None":
        """From one value a seed; None without any, or where one is NaN."""
        if not values or not np.isfinite(values).all():
            return None
        if len(values) == 1:
            return cls(values[0], None, 1)
        return cls(*metrics.mean_2sigma(values), len(values))


class PairGain(NamedTuple):
    """What two thresholds have on test more than one, all chosen on validation; accuracy is None where none is."""

    coverage: Difference
    accuracy: Difference | None


def pair_gain(runs: Sequence[RunScores], target: float, score: Score) -> PairGain:
    """Compare the rules over the runs of a variant, paired by test clip."""
    one, both = [], []
    for run in runs:
        validation, test = run.sets["validation"], run.sets["test"]
        both.append(chosen_pair(run, target).accepted(test.entropy, test.vacuity))
        threshold = operating_point(validation.correct, validation.score(score), target).threshold
        one.append(~withheld(test.score(score), threshold))
    first, second = np.stack(both, axis=1), np.stack(one, axis=1)
    correct = np.stack([run.sets["test"].correct for run in runs], axis=1)
    return PairGain(coverage_difference(first, second), accepted_accuracy_difference(correct, first, second))


class Observed(NamedTuple):
    """A promise on the test split.

    Attributes
    ----------
    coverage, accuracy : over the seeds; accuracy of what is accepted.
    interval : of the accuracy, 95 %, at the seeds' mean counts.
    kept : in how many runs the accuracy reached the target.
    refuted : in how many its interval lies below the target, which chance among independent clips hardly explains.
    """

    coverage: Estimate
    accuracy: Estimate
    interval: metrics.Interval | None
    kept: int
    refuted: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of a report.

    Attributes
    ----------
    runs : variant → its runs, seeds rising; variants in the order of the method's table.
    figures : run's name → its figures.
    pairs : (variant, target, score) → two thresholds against one.
    loss_times : what each loss costs, where it was measured.
    weighted : runs of the same recipe whose KL term climbs to a weight of its own, by variant, weight and seed.
    """

    runs: dict[str, list[RunScores]]
    figures: dict[str, Figures]
    pairs: dict[tuple[str, float, Score], PairGain]
    weighted: list[RunScores] = field(default_factory=list)
    loss_times: "LossTimes | None" = None

    @classmethod
    def of(cls, runs: Sequence[RunScores], step: Callable[[], None] = lambda: None) -> "Comparison":
        """Compute all figures; `step` is called after each run and each variant.

        Raises SettingError where the runs cannot be compared, see `check_comparable`.
        """
        check_comparable(runs)
        own = [run for run in runs if kl_end(run) is None]
        weighted = sorted(
            (run for run in runs if kl_end(run) is not None), key=lambda r: (r.variant, kl_end(r) or 0, r.seed)
        )
        ordered = {v: sorted((r for r in own if r.variant == v), key=lambda r: r.seed) for v in VARIANTS}
        ordered = {v: some for v, some in ordered.items() if some}
        computed, pairs = {}, {}
        for run in runs:
            computed[run.run] = figures(run)
            step()
        for v, some in ordered.items():
            pairs.update({(v, t, s): pair_gain(some, t, s) for t in TARGETS for s in SCORES})
            step()
        return cls(ordered, computed, pairs, weighted)

    def has(self, name: str) -> bool:
        """Whether every run was scored on the set."""
        return all(name in run.sets for runs in self.runs.values() for run in runs)

    def clips(self, name: str) -> int:
        """How many clips the set has."""
        return len(next(iter(self.runs.values()))[0].sets[name].truth)

    def values(self, variant: str, key: Key) -> list[float]:
        """A figure of each of the variant's runs that has it."""
        return [self.figures[run.run][key] for run in self.runs[variant] if key in self.figures[run.run]]

    def estimate(self, variant: str, key: Key) -> Estimate | None:
        """A figure over the variant's seeds; None where any of them has none."""
        values = self.values(variant, key)
        return Estimate.of(values) if len(values) == len(self.runs[variant]) else None

    def observed(self, variant: str, score: str, target: float, rule: str) -> Observed | None:
        """What a rule's thresholds give on the test split; None where some run has no threshold or accepts nothing."""
        keys = [Key(q, "test", score, target, rule) for q in ("coverage", "accepted", "accepted_accuracy")]
        coverage, accepted, accuracy = (self.estimate(variant, key) for key in keys)
        if not (coverage and accepted and accuracy):
            return None
        counts = zip(*(self.values(variant, key) for key in keys[1:]), strict=True)
        intervals = [accepted_interval(n, a) for n, a in counts]
        return Observed(
            coverage,
            accuracy,
            accepted_interval(accepted.mean, accuracy.mean),
            kept=sum(a >= target - TOLERANCE for a in self.values(variant, keys[2])),
            refuted=sum(i is not None and i.high < target for i in intervals),
        )

    def to_csv(self) -> str:
        """Every figure of every run, a row each."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["run", "variant", "seed", *Key._fields, "value"])
        for run in [*(run for runs in self.runs.values() for run in runs), *self.weighted]:
            for key, value in self.figures[run.run].items():
                row = ["" if part is None else part for part in key]
                writer.writerow([run.run, run.variant, run.seed, *row, "" if np.isnan(value) else f"{value:.8g}"])
        return out.getvalue()


def kl_end(run: RunScores) -> float | None:
    """The weight that a run's KL term was to climb to; None for the variant's own."""
    return run.recipe.get("kl_end")


def check_comparable(runs: Sequence[RunScores]) -> None:
    """Refuse what would compare more than variants.

    Raises
    ------
    SettingError : there are no runs, or none with the variant's own weight of the KL term; two are of one variant, seed
        and weight; recipes differ in more than those; words differ; a set was made of other clips for one run than for
        another.
    """
    if not runs:
        raise SettingError("no runs to compare; expected at least one score file")
    if all(kl_end(run) is not None for run in runs):
        raise SettingError("only runs with kl_end; expected runs of the recipe's own to compare them with")
    first = runs[0]
    seen: dict[tuple[str, int, float | None], str] = {}
    for run in runs:
        key = (run.variant, run.seed, kl_end(run))
        if key in seen:
            raise SettingError(
                f"{seen[key]} and {run.run} are both {run.variant} with seed {run.seed}; keep one score file of the two"
            )
        seen[key] = run.run
        own, others = (Recipe.from_dict(scored.recipe) for scored in (run, first))  # settings added since: defaults
        if differing := set(own.differences(others)) - {"name", "variant", "seed", "kl_end"}:
            raise SettingError(
                f"{run.run} and {first.run} have recipes that differ in {', '.join(sorted(differing))}; "
                "expected one recipe, in which variant and seed differ"
            )
        if run.labels != first.labels:
            raise SettingError(f"{run.run} and {first.run} have different words; report on them separately")
        parts = ((run.keys, first.keys), (run.contents, first.contents))
        if stale := sorted({name for a, b in parts for name in a.keys() & b.keys() if a[name] != b[name]}):
            raise SettingError(
                f"{run.run} and {first.run} were scored on other clips ({', '.join(stale)}); "
                "score all runs with one command"
            )
