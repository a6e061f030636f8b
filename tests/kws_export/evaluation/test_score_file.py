"""What a score file keeps of a run's answers, and what is refused as none."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kws_edge.errors import SettingError
from kws_edge.files import read_arrays
from kws_export.evaluation.score_file import KeptAnswers, RunScores, shortened
from kws_export.evaluation.scoring import Scored

floats: st.SearchStrategy[Any] = hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(0, 1, width=32))


@given(floats)
def test_floats_keep_sixteen_significant_bits_and_their_order(values: Any) -> None:
    normal = np.where(values < np.finfo(np.float32).tiny, np.float32(0), values)
    short = shortened(normal)
    np.testing.assert_allclose(short, normal, rtol=2.0**-16)
    assert (np.diff(short[np.argsort(normal)]) >= 0).all()
    np.testing.assert_array_equal(shortened(short), short)
    assert not (short.view(np.uint32) & 0xFF).any()


def test_scores_are_kept_to_the_last_bit() -> None:
    crowd = np.float32(1) - np.arange(1, 5, dtype=np.float32) * np.finfo(np.float32).epsneg
    scored = Scored(np.zeros(4, int), np.zeros(4, int), np.ones((4, 2), np.float32), crowd, crowd[::-1])
    kept = KeptAnswers.of(scored)
    assert kept.score("vacuity").tolist() == crowd.tolist()
    assert kept.score("entropy").tolist() == crowd[::-1].tolist()


def test_of_a_models_outputs_the_proper_scoring_rules_needs_are_kept() -> None:
    alpha = np.array([[6, 2, 2], [1, 1, 8]], np.float32)
    scored = Scored(np.array([1, 2]), np.array([0, 2]), alpha, np.array([0.3, 0.2]), np.array([0.8, 0.4]))
    kept = KeptAnswers.of(scored, with_probabilities=True)
    assert kept.correct.tolist() == [False, True]
    assert kept.p_truth == pytest.approx([0.2, 0.8], rel=1e-4)
    assert kept.p_predicted == pytest.approx([0.6, 0.8], rel=1e-4)
    assert kept.sum_p2 == pytest.approx([0.44, 0.66], rel=1e-4)
    assert KeptAnswers.of(scored).p_truth is None


SCORES = RunScores(
    "softmax-1", "softmax", 1, 4, 3, {"name": "x", "epochs": 4}, ("yes", "no"), "abc",
    {"test": "k"},
    {"noise": ["n/*"]},
    {
        "test": KeptAnswers(*(np.array([0, 1], np.int16),) * 2, *(np.array([0.25, 0.5], np.float32),) * 5),
        "speech": KeptAnswers(*(np.array([-1], np.int16),) * 2, *(np.array([0.5], np.float32),) * 2),
    },
)  # fmt: skip


def test_a_file_gives_back_what_was_saved_and_the_same_scores_give_the_same_bytes(tmp_path: Path) -> None:
    SCORES.save(tmp_path / "a.npz")
    SCORES.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = RunScores.load(tmp_path / "a.npz")
    assert replace(loaded, sets={}) == replace(SCORES, sets={})
    for name, answers in SCORES.sets.items():
        for field in answers.__slots__:
            np.testing.assert_array_equal(getattr(loaded.sets[name], field), getattr(answers, field))
    assert loaded.sets["speech"].p_truth is None


def test_what_is_no_score_file_or_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(SettingError, match=r"text\.npz holds no scores"):
        RunScores.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(SettingError, match=r"other\.npz holds no scores: .*about"):
        RunScores.load(tmp_path / "other.npz")
    np.savez(tmp_path / "old.npz", about=np.array(json.dumps({"format": 0})))
    with pytest.raises(SettingError, match="format 0; expected 2: score the run again"):
        RunScores.load(tmp_path / "old.npz")


@pytest.mark.parametrize(
    ("array", "value"),
    [
        ("about", 5), ("about", "[1]"), ("about", '{"format": 2}'), ("test/truth", None), ("test/truth", 5),
        ("test/truth", np.zeros(3, np.int16)), ("test/entropy", "a\n\x1b[2J"), ("test/entropy", np.zeros(2, np.int16)),
        ("test/logits", np.zeros(2, np.float32)), ("test/logits", np.zeros((2, 3), np.float32)),
        ("test/predicted", np.array([0, 2], np.int16)), ("test/truth", np.array([-2, 0], np.int16)),
        ("speech/nonsense", np.zeros(1, np.float32)),
    ],
)  # fmt: skip
def test_a_damaged_score_file_is_an_error_of_one_line(tmp_path: Path, array: str, value: Any) -> None:
    SCORES.save(tmp_path / "a.npz")
    arrays = read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **{name: v for name, v in {**arrays, array: value}.items() if v is not None})
    with pytest.raises(SettingError, match=r"a\.npz holds no scores") as refused:
        RunScores.load(tmp_path / "a.npz")
    assert str(refused.value).isprintable()
