"""Sounds that the tests make: tones, two words of tone in a stream, WAV files."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
from tiny_model import TONES

RATE = 16_000
WAV = {"Content-Type": "audio/wav"}


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE) -> npt.NDArray[np.float32]:
    """A sine at half of full scale."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def wav(samples: npt.NDArray[Any], rate: int = RATE, subtype: str = "PCM_16", container: str = "WAV") -> bytes:
    """The bytes of a file that holds them."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return file.getvalue()


def speech() -> npt.NDArray[np.int16]:
    """Two words of tone with pauses around them, int16."""
    quiet = np.random.default_rng(3).normal(0, 1e-4, RATE * 2)
    said = [0.5 * np.sin(2 * np.pi * TONES[word] * np.arange(round(0.8 * RATE)) / RATE) for word in ("high", "low")]
    return (np.concatenate([quiet, said[0], quiet, said[1], quiet]) * 32767).astype(np.int16)
