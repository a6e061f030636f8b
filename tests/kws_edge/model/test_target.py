"""A target is understood however it is written, and refused where it could mean two things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kws_edge.errors import SettingError
from kws_edge.model.target import Target, parse_target


@pytest.mark.parametrize("target", [0.995, 99.5, "0.995", "99.5", "99.5%", "99.5 %", " 99.50 % "])
def test_one_target_is_written_in_many_ways(target: Target) -> None:
    assert parse_target(target) == 0.995


def test_100_is_100_percent() -> None:
    assert parse_target(100) == parse_target("100") == 1


def test_a_percent_sign_says_that_a_small_number_is_a_percentage() -> None:
    assert (parse_target("0.5 %"), parse_target(0.5), parse_target("1 %"), parse_target("100 %")) == (
        0.005,
        0.5,
        0.01,
        1,
    )


@pytest.mark.parametrize("target", [1, 1.0, "1"])
def test_a_bare_1_is_refused_as_it_may_mean_either(target: Target) -> None:
    with pytest.raises(SettingError, match="expected 100 % or 1 %"):
        parse_target(target)


@pytest.mark.parametrize("target", [0, -0.5, 101, "101 %", "0 %", "high", "", "%", float("nan"), float("inf"), True])
def test_what_is_no_accuracy_is_refused(target: Target) -> None:
    with pytest.raises(SettingError, match=r"expected an accuracy such as 99\.5 %"):
        parse_target(target)


@given(st.floats(0.0101, 0.9999))
def test_a_percentage_and_its_fraction_are_the_same(fraction: float) -> None:
    assert parse_target(fraction) == fraction
    assert parse_target(100 * fraction) == pytest.approx(fraction, abs=1e-12)
