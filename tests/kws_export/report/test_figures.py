"""Every figure of a run: what it is of, and from which clips."""

from dataclasses import replace

import numpy as np
import pytest
import score_files
from sklearn.metrics import log_loss

from kws_edge.errors import SettingError
from kws_export.evaluation import metrics
from kws_export.evaluation.thresholds import conservative_operating_point, operating_point, point_at
from kws_export.report.figures import Key, chosen_pair, figures

RUN = score_files.run("softmax")
TEST, VALIDATION = RUN.sets["test"], RUN.sets["validation"]


@pytest.fixture(scope="module")
def of_run() -> dict[Key, float]:
    return figures(RUN)


def test_accuracy_is_of_every_set_that_holds_words(of_run: dict[Key, float]) -> None:
    found = {key.on: value for key, value in of_run.items() if key.quantity == "accuracy"}
    assert found == {name: RUN.sets[name].correct.mean() for name in score_files.INSIDE}


@pytest.mark.parametrize("score", ["entropy", "vacuity"])
def test_rankings_are_those_of_the_metrics(of_run: dict[Key, float], score: str) -> None:
    u = getattr(TEST, score)
    assert of_run[Key("aurc", "test", score)] == metrics.aurc(TEST.correct, u)
    assert of_run[Key("auroc_errors", "test", score)] == metrics.auroc_errors(TEST.correct, u)
    speech = getattr(RUN.sets["speech"], score)
    assert of_run[Key("auroc", "speech", score)] == metrics.auroc_ood(u, speech)


def test_scores_that_are_one_to_the_last_bit_are_counted() -> None:
    vacuity = TEST.vacuity.copy()
    vacuity[:60], vacuity[60] = 1, np.nextafter(np.float32(1), np.float32(0))
    crowded = replace(RUN, sets={"validation": VALIDATION, "test": replace(TEST, vacuity=vacuity)})
    at_one = (TEST.vacuity[61:] == 1).sum()
    assert figures(crowded)[Key("saturated", "test", "vacuity")] == (60 + at_one) / 600


def test_scoring_rules_from_what_is_kept_are_those_of_whole_distributions(of_run: dict[Key, float]) -> None:
    p = score_files.probabilities(TEST.predicted.astype(int), TEST.entropy.astype(float))
    truth = TEST.truth.astype(int)
    brier = np.square(p - np.eye(p.shape[1])[truth]).sum(1).mean()
    assert of_run[Key("brier", "test")] == pytest.approx(brier, rel=1e-3)
    assert of_run[Key("nll", "test")] == pytest.approx(log_loss(truth, p, labels=range(p.shape[1])), rel=1e-3)
    ece = metrics.expected_calibration_error(TEST.correct, p.max(1))
    assert of_run[Key("ece", "test")] == pytest.approx(ece, abs=2e-3)


def test_the_papers_rule_looks_at_the_clips_that_chose_its_threshold(of_run: dict[Key, float]) -> None:
    point = operating_point(TEST.correct, TEST.vacuity, 0.99)
    key = Key("total_accuracy", "test", "vacuity", 0.99, "paper")
    assert of_run[key] == point.total_accuracy
    assert of_run[key._replace(quantity="coverage")] == point.coverage


@pytest.mark.parametrize("on", ["test", "test_0dB"])
def test_the_other_rules_choose_on_validation(of_run: dict[Key, float], on: str) -> None:
    for rule, choose in (("validation", operating_point), ("conservative", conservative_operating_point)):
        threshold = choose(VALIDATION.correct, VALIDATION.entropy, 0.99).threshold
        seen = point_at(RUN.sets[on].correct, RUN.sets[on].entropy, threshold, 0.99)
        key = Key("coverage", on, "entropy", 0.99, rule)
        assert of_run[key] == seen.coverage
        accuracy = of_run[key._replace(quantity="accepted_accuracy")]
        assert np.isnan(accuracy) if seen.accepted_accuracy is None else accuracy == seen.accepted_accuracy


def test_two_thresholds_are_a_score_of_their_own(of_run: dict[Key, float]) -> None:
    kept = chosen_pair(RUN, 0.99).accepted(TEST.entropy, TEST.vacuity)
    key = Key("coverage", "test", "both", 0.99, "validation")
    assert 0 < of_run[key] == kept.mean()
    assert of_run[key._replace(quantity="accepted_accuracy")] == TEST.correct[kept].mean()
    other = RUN.sets["speech"]
    accepted = chosen_pair(RUN, 0.99).accepted(other.entropy, other.vacuity)
    assert of_run[Key("withheld", "speech", "both", 0.99, "validation")] == pytest.approx(1 - accepted.mean())


def test_what_is_withheld_from_outside_is_what_lies_above_the_threshold(of_run: dict[Key, float]) -> None:
    threshold = operating_point(VALIDATION.correct, VALIDATION.vacuity, 0.995).threshold
    share = (RUN.sets["silence"].vacuity > np.float32(threshold)).mean()
    assert of_run[Key("withheld", "silence", "vacuity", 0.995, "validation")] == pytest.approx(share)


def test_a_run_without_an_error_has_no_auroc_of_errors() -> None:
    perfect = replace(TEST, predicted=TEST.truth)
    found = figures(replace(RUN, sets={"validation": VALIDATION, "test": perfect}))
    assert np.isnan(found[Key("auroc_errors", "test", "entropy")])
    assert found[Key("accuracy", "test")] == 1


def test_a_run_that_was_not_scored_on_both_splits_is_refused() -> None:
    with pytest.raises(SettingError, match="softmax-1: not scored on validation"):
        figures(replace(RUN, sets={"test": TEST}))
