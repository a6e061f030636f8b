"""Simulate rooms and microphones for training.

An impulse response has two parts. Early: image sources of a shoebox room, each wall absorbing alike, with delays in
fractions of a sample. Late: noise that decays by 60 dB in the reverberation time, the treble faster, at the level that
the images have where it takes over. Sources: J. B. Allen and D. A. Berkley 1979, "Image method for efficiently
simulating small-room acoustics"; C. F. Eyring 1930, "Reverberation time in dead rooms".

A microphone is a filter: where its range begins and ends, and a broad peak or dip between; some are telephones.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import fft, signal

from kws_edge.arrays import F32, F64
from kws_edge.audio.level import SAMPLE_RATE

SOUND = 343.0
"""m/s."""
EARLY = 0.06
"""Seconds of images; there are more than a thousand by then, and single ones are no longer heard."""
SIZES = ((2.5, 8.0), (2.2, 7.0), (2.2, 3.5))
"""Length, breadth and height of rooms, m."""
DISTANCES = (0.3, 4.0)
"""From the mouth to the microphone, m."""
SHORTEST = 0.05
"""Seconds of reverberation; the room of a shorter one would swallow more than all sound."""
LENGTH = 0.7
"""Seconds that are kept of a response."""
TREBLE = 3000.0
"""Hz; above it, air and furniture make the late part decay in two thirds of the time."""

C64 = npt.NDArray[np.complex64]

_FFT = 32_768  # samples; covers a window of 1.3 s and a response


def impulse_response(rng: np.random.Generator, reverberation: float) -> F32:
    """The response of a random room from a random place in it to another.

    Parameters
    ----------
    reverberation : RT60, s; at least `SHORTEST`.

    Returns
    -------
    float32 [n], of unit energy, the direct sound within the first samples.
    """
    size = np.array([rng.uniform(*s) for s in SIZES])
    volume, surface = size.prod(), 2 * (size[0] * size[1] + size[1] * size[2] + size[0] * size[2])
    absorption = 1 - np.exp(-24 * np.log(10) * volume / (SOUND * surface * reverberation))
    microphone, mouth = _two_places(rng, size)
    h = _images(size, microphone, mouth, np.sqrt(1 - absorption))
    return _with_late_part(h, rng, reverberation)


def _two_places(rng: np.random.Generator, size: F64) -> tuple[F64, F64]:
    """A microphone and a mouth, both off the walls, at a distance within the range."""
    for _ in range(1000):
        microphone, mouth = (rng.uniform(0.1, size - 0.1) for _ in range(2))
        direction = mouth - microphone
        mouth = microphone + direction / np.linalg.norm(direction) * rng.uniform(*DISTANCES)
        if (mouth > 0.1).all() and (mouth < size - 0.1).all():
            break
    else:
        mouth = np.clip(microphone + DISTANCES[0], 0.05, size - 0.05)
    return microphone, mouth


def _images(size: F64, microphone: F64, mouth: F64, reflection: float) -> F64:
    """The sum of the mouth's images by distance and reflections: float64 [EARLY], from the direct sound on."""
    direct = float(np.linalg.norm(mouth - microphone))
    farthest = direct + EARLY * SOUND
    coordinates, bounces = [], []
    for axis in range(3):
        n = np.arange(-int(farthest / (2 * size[axis])) - 1, int(farthest / (2 * size[axis])) + 2)
        coordinates.append(np.concatenate([2 * n * size[axis] + mouth[axis], 2 * n * size[axis] - mouth[axis]]))
        bounces.append(np.concatenate([2 * np.abs(n), np.abs(2 * n - 1)]))
    x, y, z = (c - m for c, m in zip(coordinates, microphone, strict=True))
    distance = np.sqrt(x[:, None, None] ** 2 + y[None, :, None] ** 2 + z[None, None, :] ** 2).ravel()
    count = (bounces[0][:, None, None] + bounces[1][None, :, None] + bounces[2][None, None, :]).ravel()
    near = distance < farthest
    delay = (distance[near] - direct) / SOUND * SAMPLE_RATE
    gain = reflection ** count[near] * direct / distance[near]
    whole = delay.astype(np.int64)
    out = np.zeros(round(EARLY * SAMPLE_RATE) + 2)
    np.add.at(out, whole, gain * (1 - (delay - whole)))
    np.add.at(out, whole + 1, gain * (delay - whole))
    return out[:-2]


def _with_late_part(h: F64, rng: np.random.Generator, reverberation: float) -> F32:
    n = min(round(LENGTH * SAMPLE_RATE), round(1.2 * reverberation * SAMPLE_RATE) + len(h))
    t = np.arange(n) / SAMPLE_RATE
    bass, treble = (rng.standard_normal(n) * 10 ** (-3 * t / rt) for rt in (reverberation, reverberation * 2 / 3))
    low = signal.butter(2, TREBLE, fs=SAMPLE_RATE, output="sos")
    high = signal.butter(2, TREBLE, "high", fs=SAMPLE_RATE, output="sos")
    late = signal.sosfilt(low, bass) + signal.sosfilt(high, treble)
    overlap = slice(len(h) // 2, len(h))
    level = np.sqrt(np.sum(h[overlap] ** 2) / np.sum(late[overlap] ** 2))
    fade = np.clip((np.arange(n) - overlap.start) / (overlap.stop - overlap.start), 0, 1)
    out = level * np.sqrt(fade) * late
    out[: len(h)] += h * np.sqrt(1 - fade[: len(h)])
    return (out / np.linalg.norm(out)).astype(np.float32)


@lru_cache(maxsize=2)
def rooms(count: int, reverberation: tuple[float, float]) -> list[F32]:
    """So many impulse responses, the same in every run; reverberation times from the shortest to the longest, s."""
    rng = np.random.default_rng([count, 7])
    return [impulse_response(rng, rng.uniform(*reverberation)) for _ in range(count)]


@lru_cache(maxsize=2)
def _spectra(count: int, reverberation: tuple[float, float], size: int) -> list[C64]:
    return [fft.rfft(h, size) for h in rooms(count, reverberation)]


def in_room(
    x: F32, rng: np.random.Generator, *, count: int, reverberation: tuple[float, float], probability: float
) -> F32:
    """Let a sound be heard in one of `rooms`: float32 [n] → [n]; what rings on after it is cut."""
    if not probability or rng.random() >= probability:
        return x
    size = max(_FFT, fft.next_fast_len(len(x) + round(LENGTH * SAMPLE_RATE)))  # or the end is heard at the beginning
    spectrum = _spectra(count, reverberation, size)[int(rng.integers(count))]
    y: F32 = fft.irfft(fft.rfft(x, size) * spectrum, size)[: len(x)].astype(np.float32, copy=False)
    return y


@lru_cache(maxsize=1)
def microphones(count: int) -> list[F64]:
    """So many filters, second-order sections each, the same in every run. A fifth are telephones (300 to 3,400 Hz)."""
    rng = np.random.default_rng([count, 8])
    return [_telephone() if rng.random() < 0.2 else _microphone(rng) for _ in range(count)]


def _telephone() -> F64:
    band: F64 = signal.butter(4, (300, 3400), "band", fs=SAMPLE_RATE, output="sos")
    return band


def _microphone(rng: np.random.Generator) -> F64:
    low, high = np.exp(rng.uniform(np.log(30), np.log(400))), rng.uniform(3500, 7800)
    sections = [
        signal.butter(int(rng.integers(1, 3)), low, "high", fs=SAMPLE_RATE, output="sos"),
        signal.butter(int(rng.integers(1, 4)), high, fs=SAMPLE_RATE, output="sos"),
        _peak(np.exp(rng.uniform(np.log(300), np.log(5000))), rng.uniform(-10, 10), rng.uniform(0.5, 1.5))[None],
    ]
    return np.concatenate(sections)


def _peak(frequency: float, gain_db: float, quality: float) -> F64:
    """A section that raises or lowers the sound around a frequency (R. Bristow-Johnson, "Audio EQ Cookbook")."""
    a, w = 10 ** (gain_db / 40), 2 * np.pi * frequency / SAMPLE_RATE
    alpha = np.sin(w) / (2 * quality)
    b = np.array([1 + alpha * a, -2 * np.cos(w), 1 - alpha * a])
    c = np.array([1 + alpha / a, -2 * np.cos(w), 1 - alpha / a])
    return np.concatenate([b, c]) / c[0]


def through_microphone(x: F32, rng: np.random.Generator, *, count: int, probability: float) -> F32:
    """Let one of `microphones` colour a sound: float32 [n] → [n]."""
    if not probability or rng.random() >= probability:
        return x
    sections = microphones(count)[int(rng.integers(count))]
    return signal.sosfilt(sections, x).astype(np.float32)


def overdrive(x: F32, rng: np.random.Generator, *, probability: float, most_db: float) -> F32:
    """Record a sound too loud by up to `most_db`, so that its peaks are cut off, and bring it back to its level."""
    if not probability or rng.random() >= probability:
        return x
    limit = np.float32(np.abs(x).max() * 10 ** (-rng.uniform(0, most_db) / 20))
    return np.clip(x, -limit, limit, out=x)
