"""The recording that the tests of `kws-edge listen` hear."""

from typing import Any

import numpy as np
import tiny_model

RATE = 16_000


def tone(word: str, seconds: float = 0.8) -> Any:
    """A word of the tiny model."""
    return 0.3 * np.sin(2 * np.pi * tiny_model.TONES[word] * np.arange(round(seconds * RATE)) / RATE)


def noise(seconds: float, amplitude: float = 0.0003) -> Any:
    """White noise, by default that of a quiet room."""
    return amplitude * np.random.default_rng(1).standard_normal(round(seconds * RATE))


SOUND = np.concatenate([noise(1.5), tone("mid"), noise(1.5), noise(0.8, 0.05), noise(1.5), tone("low"), noise(1.5)])
"""A word, something that is none, and another word."""
