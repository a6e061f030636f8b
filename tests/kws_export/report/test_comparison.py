"""A comparison of runs: its estimates, and which runs may be compared."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
import score_files

from kws_edge.errors import SettingError
from kws_export.evaluation import metrics
from kws_export.evaluation.score_file import RunScores
from kws_export.evaluation.thresholds import operating_point, point_at
from kws_export.report.comparison import Comparison
from kws_export.report.figures import Key, figures

RUN = score_files.run("softmax")
TEST, VALIDATION = RUN.sets["test"], RUN.sets["validation"]


# ---- several runs


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    runs = [score_files.run("softplus"), *(score_files.run("edl_ce", seed) for seed in (2, 1))]
    return Comparison.of(runs)


def test_variants_stand_in_the_methods_order_and_seeds_rise(comparison: Comparison) -> None:
    assert {v: [r.seed for r in runs] for v, runs in comparison.runs.items()} == {"edl_ce": [1, 2], "softplus": [1]}
    assert list(comparison.runs) == ["edl_ce", "softplus"]


def test_an_estimate_is_mean_and_two_sigma_or_a_single_value(comparison: Comparison) -> None:
    key = Key("accuracy", "test")
    two = comparison.values("edl_ce", key)
    estimate = comparison.estimate("edl_ce", key)
    assert estimate is not None
    assert estimate == (pytest.approx(np.mean(two)), pytest.approx(2 * np.std(two, ddof=1)), 2)
    single = comparison.estimate("softplus", key)
    assert single == (comparison.values("softplus", key)[0], None, 1)


def test_there_is_no_estimate_of_what_some_run_lacks(comparison: Comparison) -> None:
    assert comparison.estimate("edl_ce", Key("accuracy", "nowhere")) is None
    assert comparison.estimate("edl_ce", Key("accepted_accuracy", "test", "entropy", 0.999, "conservative")) is None


def test_a_promise_is_counted_over_the_runs(comparison: Comparison) -> None:
    o = comparison.observed("edl_ce", "entropy", 0.99, "validation")
    assert o is not None
    seen = []
    for run in comparison.runs["edl_ce"]:
        v, t = run.sets["validation"], run.sets["test"]
        threshold = operating_point(v.correct, v.entropy, 0.99).threshold
        seen.append(point_at(t.correct, t.entropy, threshold, 0.99))
    assert o.kept == sum(p.accepted_accuracy is not None and p.accepted_accuracy >= 0.99 for p in seen)
    assert o.coverage.mean == pytest.approx(np.mean([p.coverage for p in seen]))
    assert o.interval is not None
    assert o.interval.low < o.accuracy.mean < o.interval.high
    intervals = [metrics.accuracy_interval(round(p.total_accuracy * p.total), p.accepted) for p in seen]
    assert o.refuted == sum(i.high < 0.99 for i in intervals)
    assert comparison.observed("edl_ce", "entropy", 0.999, "conservative") is None


def test_two_thresholds_gain_what_they_accept_more(comparison: Comparison) -> None:
    gain = comparison.pairs["softplus", 0.99, "vacuity"]
    keys = [Key("coverage", "test", score, 0.99, "validation") for score in ("both", "vacuity")]
    both, alone = (comparison.values("softplus", key)[0] for key in keys)
    assert gain.coverage.value == pytest.approx(both - alone)
    assert gain.coverage.low <= gain.coverage.value <= gain.coverage.high


def test_the_csv_has_a_row_for_every_figure_of_every_run(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    assert len(rows) == sum(len(f) for f in comparison.figures.values())
    row = next(r for r in rows if r["run"] == "edl_ce-2" and r["quantity"] == "accuracy" and r["on"] == "test")
    assert float(row["value"]) == pytest.approx(comparison.figures["edl_ce-2"][Key("accuracy", "test")])
    assert (row["variant"], row["seed"], row["score"], row["target"]) == ("edl_ce", "2", "", "")
    assert "nan" not in comparison.to_csv()


# ---- what is not compared


def with_recipe(run: RunScores, **changes: object) -> RunScores:
    return replace(run, recipe={**run.recipe, **changes})


def weighted(variant: str, end: float) -> RunScores:
    """A run whose KL term climbs to `end`."""
    return with_recipe(score_files.run(variant, run=f"{variant}-kl{end:g}-1"), kl_end=end)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "no runs to compare"),
        ([with_recipe(RUN, kl_end=0.1)], "only runs with kl_end"),
        ([RUN, replace(RUN, run="again")], "softmax-1 and again are both softmax with seed 1"),
        ([RUN, replace(RUN)], "softmax-1 and softmax-1 are both softmax with seed 1; keep one score file"),
        ([RUN, with_recipe(score_files.run("edl_ce"), epochs=20)], "recipes that differ in epochs"),
        ([RUN, score_files.run("edl_ce", labels=("a", "b", "c"))], "have different words"),
        ([RUN, score_files.run("edl_ce", keys={"test": "other"})], r"scored on other clips \(test\)"),
        (
            [replace(RUN, contents={"test": "a"}), score_files.run("edl_ce", contents={"test": "b"})],
            r"scored on other clips \(test\)",
        ),
    ],
)
def test_what_differs_in_more_than_variant_and_seed_is_not_compared(runs: list[RunScores], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Comparison.of(runs)


def test_runs_with_a_weight_of_their_own_for_the_kl_term_stand_apart() -> None:
    runs = [score_files.run("edl_ce"), weighted("edl_ce", 1.0), weighted("edl_ce", 0.1)]
    found = Comparison.of([RUN, *runs])
    assert {v: [r.run for r in some] for v, some in found.runs.items()} == {
        "edl_ce": ["edl_ce-1"],
        "softmax": ["softmax-1"],
    }
    assert [run.run for run in found.weighted] == ["edl_ce-kl0.1-1", "edl_ce-kl1-1"]
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["variant"] for row in rows if row["run"] == "edl_ce-kl1-1"] == ["edl_ce"] * len(
        found.figures["edl_ce-kl1-1"]
    )
    with pytest.raises(SettingError, match=r"edl_ce-kl0.1-1 and twin are both edl_ce with seed 1"):
        Comparison.of([*runs, replace(weighted("edl_ce", 0.1), run="twin")])


def test_the_rank_correlation_is_that_of_the_two_scores() -> None:
    alike = replace(TEST, vacuity=np.sqrt(TEST.entropy))
    against = replace(TEST, vacuity=1 - TEST.entropy)
    key, sets = Key("rank_correlation", "test"), {"validation": VALIDATION}
    assert figures(replace(RUN, sets={**sets, "test": alike}))[key] == pytest.approx(1)
    assert figures(replace(RUN, sets={**sets, "test": against}))[key] == pytest.approx(-1, abs=1e-4)
    assert np.isnan(
        figures(replace(RUN, sets={**sets, "test": replace(TEST, vacuity=np.ones_like(TEST.vacuity))}))[key]
    )


def test_a_run_scored_before_a_setting_existed_is_compared_as_with_its_default() -> None:
    assert Comparison.of([RUN, with_recipe(score_files.run("edl_ce"), average=0.0)])
    with pytest.raises(SettingError, match="differ in average"):
        Comparison.of([RUN, with_recipe(score_files.run("edl_ce"), average=0.5)])
