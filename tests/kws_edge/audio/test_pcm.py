"""Samples as integers and as numbers of full scale ±1."""

import numpy as np
import pytest

from kws_edge.audio.pcm import STEP, as_float, as_int16


def test_every_int16_comes_back_from_floating_point() -> None:
    all_values = np.arange(-32768, 32768).astype(np.int16)
    np.testing.assert_array_equal(as_int16(as_float(all_values)), all_values)


@pytest.mark.parametrize(
    ("sample", "integer"),
    [(0.6 * STEP, 1), (-0.6 * STEP, -1), (0.4 * STEP, 0), (-0.5, -16384), (1.0, 32767), (1.5, 32767), (-1.5, -32768)],
)
def test_a_sample_is_rounded_and_what_is_beyond_full_scale_is_clipped(sample: float, integer: int) -> None:
    assert as_int16(np.array([sample], np.float32)).tolist() == [integer]
