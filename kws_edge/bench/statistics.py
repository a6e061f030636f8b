"""The interval of a ratio of two measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of medians, new over old, and the interval in which it lies at 95 %."""

    value: float
    low: float
    high: float


def ratio(new: Sequence[float], old: Sequence[float]) -> Ratio:
    """Compare two measurements, each given as its rounds' medians, above 0.

    The value is the quotient of the medians over the rounds. The interval is a percentile bootstrap over the rounds: it
    holds what varied between the rounds of each measurement, and nothing that was the same throughout one of them.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13.
    """
    rng = np.random.default_rng(1)
    medians = [
        np.median(rng.choice(np.asarray(rounds, np.float64), (_RESAMPLES, len(rounds))), axis=1)
        for rounds in (new, old)
    ]
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    return Ratio(float(np.median(new) / np.median(old)), float(low), float(high))
