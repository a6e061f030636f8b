"""The comparison of a quantised file with its source: each figure says what it is called."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_model

from kws_edge.errors import ModelError
from kws_edge.model.keyword_model import KeywordModel
from kws_export.evaluation.scoring import Scored
from kws_export.release.card import parity_rows
from kws_export.release.parity import File, Parity, Speed, compare, measure_speed

SPEED = Speed(1.25, 1.2, 1.3, "a machine")
N, K = 400, 3


def scored(seed: int, wrong: int, truth: int | None = None) -> Scored:
    """N clips, of which the first `wrong` are named wrong, and with the highest scores."""
    rng = np.random.default_rng(seed)
    right = rng.integers(K, size=N) if truth is None else np.full(N, truth)
    predicted = np.where(np.arange(N) < wrong, (right + 1) % K, right)
    u = np.sort(rng.uniform(0.1, 0.9, N))[::-1].astype(np.float32)
    return Scored(right, predicted, rng.gamma(2.0, size=(N, K)).astype(np.float32), u, u**2)


def file(name: str, size: int = 100, **sets: Scored) -> File:
    answers = {"validation": scored(1, 20), "test": scored(2, 20), "other_words": scored(3, 0, truth=-1), **sets}
    return File(replace(tiny_model.METADATA, name=name), size, answers)


def figures(parity: Parity) -> dict[str, tuple[float | None, float | None]]:
    return {f.name: (f.before, f.after) for f in parity.figures}


def test_a_file_against_itself_differs_in_nothing() -> None:
    parity = compare(file("a"), file("b"), SPEED)
    assert all(before == after for before, after in figures(parity).values())
    assert (parity.accuracy_change, *parity.interval) == (0, 0, 0)
    assert (parity.same_answer, parity.same_decision, parity.entropy_shift) == (1, 1, 0)
    assert parity.ranks == pytest.approx({"alpha": 1, "vacuity": 1, "entropy": 1})


def test_accuracy_is_compared_clip_by_clip() -> None:
    parity = compare(file("a"), file("b", test=scored(2, 28)), SPEED)  # the same clips, 8 more of them wrong
    assert figures(parity)["accuracy, test"] == (0.95, 0.93)
    assert parity.accuracy_change == pytest.approx(-0.02)
    assert parity.same_answer == 392 / 400
    # Paired: the 20 that both get wrong add nothing, so it spans the binomial of 8 in 400 and no more.
    assert -0.04 < parity.interval.low < -0.01
    assert -0.01 < parity.interval.high < 0


def test_operating_points_are_those_of_each_files_own_thresholds() -> None:
    # Twice the uncertainty everywhere: with thresholds chosen anew, nothing changes for the user.
    answers = file("a").sets
    doubled = {name: replace(s, vacuity=2 * s.vacuity, entropy=2 * s.entropy) for name, s in answers.items()}
    parity = compare(file("a"), file("b", **doubled), SPEED)
    assert all(before == after for before, after in figures(parity).values())
    assert parity.same_decision == 1
    assert parity.entropy_shift == pytest.approx(float(answers["test"].entropy.mean()))


def test_an_operating_point_is_what_accepts_the_target_on_validation() -> None:
    named = figures(compare(file("a"), file("b"), SPEED))
    # Of 400 clips, the 20 least certain are wrong: 99.5 % of those accepted are right where one of them is.
    u, test = file("a").sets["validation"].entropy, file("a").sets["test"]
    threshold = (u[19] + u[18]) / 2
    accepted = test.entropy <= threshold
    assert named["entropy 99.5 %: coverage"][0] == pytest.approx(accepted.mean())
    assert named["entropy 99.5 %: accepted accuracy"][0] == pytest.approx(test.correct[accepted].mean())
    others = file("a").sets["other_words"].entropy
    assert named["entropy 99.5 %: other words withheld"][0] == pytest.approx((others > threshold).mean())


def test_a_decision_is_the_same_where_both_withhold_whatever_the_word() -> None:
    s = file("a").sets["test"]
    other = replace(s, predicted=np.where(np.arange(N) < 10, (s.truth + 2) % K, s.predicted))  # another wrong word
    parity = compare(file("a"), file("b", test=other), SPEED)
    assert parity.same_answer == 390 / 400
    assert parity.same_decision == 1


def test_a_set_without_recordings_has_no_figure() -> None:
    names = figures(compare(file("a"), file("b"), SPEED))
    assert not [name for name in names if "silence" in name or "background" in name]
    both = {"silence": scored(4, 0, truth=-1)}
    assert "vacuity 99.9 %: silence withheld" in figures(compare(file("a", **both), file("b", **both), SPEED))


@pytest.mark.parametrize("allowed", [0.02, 0.03])
def test_a_loss_up_to_the_limit_is_allowed(allowed: float) -> None:
    compare(file("a"), file("b", test=scored(2, 28)), SPEED).require(allowed)


def test_a_larger_loss_is_refused() -> None:
    worse = r"^b: test accuracy falls from 95\.00% to 93\.00%, by 2\.00 points; expected at most 1\.9: "
    with pytest.raises(ModelError, match=worse):
        compare(file("a"), file("b", test=scored(2, 28)), SPEED).require(0.019)


def test_json_holds_every_figure() -> None:
    parity = compare(file("a", 300), file("b", 120), SPEED)
    read = json.loads(json.dumps(parity.to_dict(), allow_nan=False))
    assert read["sizes"] == [300, 120]
    assert read["interval"] == {"low": 0.0, "high": 0.0}
    assert read["speed"] == {"ratio": 1.25, "low": 1.2, "high": 1.3, "machine": "a machine"}
    assert len(read["figures"]) == 2 + 6 * 3
    assert read["figures"][0] == {"name": "accuracy, test", "before": 0.95, "after": 0.95}


def test_a_score_that_is_the_same_for_all_clips_has_no_rank() -> None:
    flat = replace(scored(2, 20), vacuity=np.full(N, 0.5, np.float32))
    parity = compare(file("a"), file("b", test=flat), SPEED)
    assert parity.ranks["vacuity"] is None
    assert parity.ranks["entropy"] == pytest.approx(1)
    assert json.loads(json.dumps(parity.to_dict(), allow_nan=False))["ranks"]["vacuity"] is None
    assert ["rank correlation of vacuity", "–"] in parity_rows(parity)[1]


def test_speed_is_how_many_times_less_time_the_second_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    clock = [0.0]
    run = KeywordModel.run

    def timed(self: KeywordModel, features: np.ndarray) -> object:
        clock[0] += 3.0 if self is slow else 2.0
        return run(self, features)

    slow = KeywordModel.load(tmp_path / "tiny.onnx")
    monkeypatch.setattr(KeywordModel, "run", timed)
    monkeypatch.setattr("kws_export.release.parity.time.perf_counter", lambda: clock[0])
    speed = measure_speed(slow, model, np.zeros((3, 64, 128), np.float32), rounds=10)
    assert (speed.ratio, speed.low, speed.high) == (1.5, 1.5, 1.5)
    assert speed.machine
