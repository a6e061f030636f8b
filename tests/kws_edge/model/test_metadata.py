"""The description in a model file: what is written is what is read, and nothing else is accepted."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import METADATA, point

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Metadata

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def written(**changes: Any) -> str:
    """The JSON of METADATA with some fields replaced by whatever is given."""
    return json.dumps({**json.loads(METADATA.to_json()), **changes})


def test_what_is_written_is_what_is_read() -> None:
    described = replace(METADATA, stream={"hop": 0.1, "note": "ünïcode"})
    assert Metadata.from_json(described.to_json()) == described


def test_the_front_end_and_its_log_floor_are_in_the_file() -> None:
    assert json.loads(METADATA.to_json())["front_end"]["log_floor"] == FrontEnd().log_floor


@pytest.mark.parametrize("schema", [0, 2, "1", None, True], ids=repr)
def test_another_schema_is_refused_whatever_its_fields(schema: Any) -> None:
    with pytest.raises(ModelError, match=rf"schema: found {schema!r}; expected 1"):
        Metadata.from_json(json.dumps({"schema": schema, "fields of": "the future"}))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "", "a text"),
        ("name", "a/b", "no spaces or path separators"),
        ("labels", ["yes"], "at least 2 words"),
        ("labels", ["yes", "yes"], "all different"),
        ("labels", "yes", "a list of words"),
        ("labels", ["yes", 1], "a list of words"),
        ("variant", "sigmoid", "one of edl_ce"),
        ("variant", [], "one of edl_ce"),
        ("score", "margin", "one of entropy, vacuity"),
        ("front_end", [], "an object"),
        ("thresholds", {"margin": []}, "scores among entropy, vacuity"),
        ("thresholds", {"vacuity": [point(0.99, 0.5).to_dict()]}, "the default score, entropy, among them"),
        ("thresholds", {"entropy": []}, "at least one operating point"),
        ("thresholds", {"entropy": [point(t, 0.5).to_dict() for t in (0.99, 0.99)]}, "rising targets"),
        ("accuracy", {"test": {"accuracy": 0.9}}, "accuracy, clips, high, low"),
        ("accuracy", {"test": {"accuracy": 0.9, "low": 0.95, "high": 1, "clips": 9}}, "low <= accuracy <= high"),
        ("accuracy", {"test": {"accuracy": 0.9, "low": 0.8, "high": 1, "clips": 0}}, "a whole number above 0"),
        ("training", None, "an object"),
        ("stream", 5, "an object"),
        ("licence", None, "a text"),
    ],
)
def test_an_impossible_field_is_refused_by_name(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ModelError, match=rf"metadata: {field}.*: found .*; expected .*{expected}"):
        Metadata.from_json(written(**{field: value}))


def test_impossible_front_end_settings_are_refused() -> None:
    settings = {**FrontEnd().to_dict(), "window": 600}
    with pytest.raises(ModelError, match=r"window of 600 samples does not fit n_fft=512"):
        Metadata.from_json(written(front_end=settings))
    deaf = {**FrontEnd().to_dict(), "n_mels": 80, "f_min": 125.0, "f_max": 7600.0}
    with pytest.raises(ModelError, match=r"no FFT bin lies in filter \d+ of 80"):
        Metadata.from_json(written(front_end=deaf))


def test_an_operating_point_that_contradicts_itself_is_refused() -> None:
    wrong = {**point(0.99, 0.5).to_dict(), "coverage": 0.1}
    with pytest.raises(ModelError, match=r"coverage=0.1 does not fit"):
        Metadata.from_json(written(thresholds={"entropy": [wrong]}))


@pytest.mark.parametrize("field", ["threshold", "total"])
def test_a_number_too_large_for_a_float_is_refused(field: str) -> None:
    with pytest.raises(ModelError, match="metadata"):
        Metadata.from_json(written(thresholds={"entropy": [{**point(0.99, 0.5).to_dict(), field: 10**400}]}))


def test_missing_and_unknown_fields_are_named() -> None:
    values = json.loads(METADATA.to_json())
    del values["labels"]
    with pytest.raises(ModelError, match=r"missing \['labels'\], unknown \['classes'\]"):
        Metadata.from_json(json.dumps({**values, "classes": ["yes", "no"]}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "[" * 100_000])
def test_what_is_not_an_object_of_json_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="metadata"):
        Metadata.from_json(text)


def test_nan_and_infinity_are_neither_written_nor_read() -> None:
    with pytest.raises(ModelError, match="JSON"):
        replace(METADATA, training={"loss": float("nan")}).to_json()
    with pytest.raises(ModelError, match="Infinity is not a JSON number"):
        Metadata.from_json(written(training={"loss": float("inf")}))


@given(field=st.sampled_from(sorted(json.loads(METADATA.to_json()))), value=JSON_VALUES)
def test_any_json_is_read_faithfully_or_refused(field: str, value: Any) -> None:
    try:
        read = Metadata.from_json(written(**{field: value}))
    except ModelError:
        return
    assert Metadata.from_json(read.to_json()) == read


@given(field=st.sampled_from(sorted(point(0.99, 0.5).to_dict())), value=JSON_VALUES)
def test_any_operating_point_is_read_faithfully_or_refused(field: str, value: Any) -> None:
    changed = {**point(0.99, 0.5).to_dict(), field: value}
    try:
        read = Metadata.from_json(written(thresholds={"entropy": [changed]}))
    except ModelError:
        return
    assert read.thresholds["entropy"][0].to_dict() == changed


@pytest.mark.parametrize(("score", "target", "threshold"), [("entropy", 0.99, 0.7), ("vacuity", 0.995, 0.5)])
def test_a_threshold_is_found_by_score_and_target(score: str, target: float, threshold: float) -> None:
    assert METADATA.threshold(score, target).threshold == threshold


def test_a_target_is_found_when_a_percentage_was_divided() -> None:
    assert 99.9 / 100 != 0.999
    assert METADATA.threshold("entropy", 99.9 / 100).target == 0.999


@pytest.mark.parametrize(("score", "target"), [("entropy", 0.9), ("vacuity", 0.99), ("margin", 0.99), ("entropy", 1.1)])
def test_a_threshold_that_there_is_not_is_refused_with_those_that_there_are(score: str, target: float) -> None:
    with pytest.raises(
        SettingError, match=r"entropy at 0.99 \(99 %\), 0.995 \(99.5 %\), 0.999 \(99.9 %\); vacuity at 0.995 \(99.5 %\)"
    ):
        METADATA.threshold(score, target)


def test_a_model_without_thresholds_says_so() -> None:
    with pytest.raises(SettingError, match="no thresholds at all"):
        replace(METADATA, thresholds={}).threshold("entropy", 0.99)
