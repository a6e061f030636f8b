"""A fixed piece of work that measures how fast the machine is at the moment.

Two runs of a benchmark meet the machine in two states: other programs, heat, another clock rate. The yardstick is timed
in every round beside the row, so that a row can also be compared as a multiple of it.
"""

import time
from collections.abc import Callable

import numpy as np


def make_yardstick() -> Callable[[], float]:
    """Give a function that does the work once and says how many seconds it took, some milliseconds.

    It is of the kinds that a row is made of, Fourier transforms in float64 and small matrix products in float32, and
    runs on one thread: the products stay below the size from which numpy would share them out.
    """
    rng = np.random.default_rng(1)
    frames = rng.standard_normal((98, 512))
    left, right = rng.standard_normal((64, 64), np.float32), rng.standard_normal((64, 48), np.float32)

    def yardstick() -> float:
        start = time.perf_counter()
        for _ in range(8):
            np.fft.rfft(frames)
            for _ in range(20):
                left @ right
        return time.perf_counter() - start

    return yardstick
