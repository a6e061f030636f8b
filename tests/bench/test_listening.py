"""The parts of bench/clips.py and bench/rooms.py that the figures rest on."""

import numpy as np
import pytest
from clips import area, share, within
from rooms import narrowed

RATE = 16_000


def test_the_area_is_how_often_an_unknown_word_scores_higher() -> None:
    assert area([0.1, 0.2, 0.3], [0.4, 0.5]) == 1
    assert area([0.1, 0.3], [0.2, 0.3]) == pytest.approx((1 + 1 + 0.5) / 4)
    assert area([0.5], [0.1]) == 0


def test_a_share_has_its_interval() -> None:
    assert share(95, 100) == "95.0 (88.8 to 97.8) % of 100"


def test_a_clip_lies_whole_in_a_longer_file_over_faint_noise() -> None:
    clip = np.full(RATE, 0.25, np.float32)
    file = within(clip, 3, np.random.default_rng(1))
    assert len(file) == 3 * RATE
    loud = np.flatnonzero(np.abs(file) > 0.1)
    assert len(loud) == loud[-1] - loud[0] + 1 == RATE
    assert 0 < np.abs(file[np.abs(file) <= 0.1]).max() < 0.01
    assert len(within(clip, 0.0, np.random.default_rng(1))) == RATE


@pytest.mark.parametrize(("tone", "kept"), [(1_000, 1.0), (6_000, 0.0)])
def test_a_telephone_band_keeps_what_is_low(tone: int, kept: float) -> None:
    t = np.arange(RATE) / RATE
    heard = narrowed(np.sin(2 * np.pi * tone * t).astype(np.float32), 8_000)
    assert np.sqrt(np.mean(heard**2)) == pytest.approx(kept / np.sqrt(2), abs=1e-3)
