"""Training-time augmentation, numpy only: lists of random changes to a clip's samples and to its MFCC.

The shift, the white noise, SpecAugment and SpecCutout are MatchboxNet's. Changes of level and speed, an offset and
recorded background noise are there because a microphone has them; each can be switched off in the recipe.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial
from typing import Any, get_type_hints

import numpy as np

from kws_edge.arrays import F32, I16
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd, dct_matrix
from kws_edge.tuning.soundscape import speech_bounds
from kws_export.data.rooms import SHORTEST, in_room, overdrive, through_microphone
from kws_export.data.speech_commands import CLIP_SAMPLES
from kws_export.ranges import check_ranges

_WHITE_NOISE = 960_000
_TRACT_STEP = 0.01

WORD_MARGIN = 1_280
"""Samples, 80 ms: what `speech_bounds` may miss of a word's quiet beginning and end."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How much of what. Pairs are (low, high) of a uniform draw; dB are relative to full scale, SNR to the clip.

    Attributes
    ----------
    speed, speed_probability : a factor on the speed and pitch, for some clips and some windows without a word.
    shift_ms : a clip moves by up to this much either way, zeros come in.
    white_noise_db : RMS of the Gaussian noise that every clip gets.
    gain_db, gain_probability : a change of level, for some clips.
    dc, dc_probability : a constant offset of up to ±dc, for some clips.
    background_snr_db, background_probability : a stretch of a recorded noise, for some clips.
    pad_probability : how often a clip shorter than 1 s is put at a random place in a whole second of silence, as a
        stream shows it, instead of being taken at its own length, as a short file shows it.
    room_probability, rooms, reverberation : how often a sound is heard in a room (rooms.py), of how many, and their
        shortest and longest reverberation times, s.
    microphone_probability, microphones : how often it is coloured by a microphone, and of how many.
    overdrive_probability, overdrive_db : how often it was recorded too loud, and by how much at most.
    stream_margin_ms : what a stream's window shows at least before and after the whole of a word.
    stream_probability : how often a clip is shown as a stream shows it (`in_stream`), not as a file of a second does.
    neighbour_probability : of those, how often other sound comes right before and after the word.
    vocal_tract : a factor on the frequencies of the formants, as tracts of other lengths have; the pitch stays.
    coding_noise : the most that a codec's noise changes the first coefficient, as a standard deviation; for every
        window another part of it is drawn. Words and other sound were coded differently, and must not be told apart by
        that.
    time_masks, time_width : SpecAugment's masks over frames, and the widest.
    band_masks, band_width : SpecAugment's masks over coefficients, and the widest.
    cutouts : SpecCutout's rectangles, of at most the same widths.
    """

    speed: tuple[float, float] = (0.9, 1.1)
    speed_probability: float = 0.0
    shift_ms: float = 100.0
    white_noise_db: tuple[float, float] = (-90.0, -46.0)
    gain_db: tuple[float, float] = (-30.0, 6.0)
    gain_probability: float = 0.3
    dc: float = 0.3
    dc_probability: float = 0.1
    background_snr_db: tuple[float, float] = (5.0, 30.0)
    background_probability: float = 0.3
    pad_probability: float = 0.5
    room_probability: float = 0.0
    rooms: int = 400
    reverberation: tuple[float, float] = (0.1, 0.9)
    microphone_probability: float = 0.0
    microphones: int = 200
    overdrive_probability: float = 0.0
    overdrive_db: float = 12.0
    stream_margin_ms: tuple[float, float] = (80.0, 80.0)
    stream_probability: float = 0.0
    neighbour_probability: float = 0.0
    vocal_tract: tuple[float, float] = (1.0, 1.0)
    coding_noise: float = 0.0
    time_masks: int = 2
    time_width: int = 25
    band_masks: int = 2
    band_width: int = 15
    cutouts: int = 5

    def __post_init__(self) -> None:
        """Refuse what cannot be meant. TOML gives lists for pairs; they become tuples."""
        for name, kind in get_type_hints(type(self)).items():
            if kind != tuple[float, float]:
                continue
            pair = tuple(getattr(self, name))
            if len(pair) != 2 or (pair[0] > pair[1] and name != "stream_margin_ms"):
                raise SettingError(f"{name}={pair}; expected two numbers, the lower first")
            object.__setattr__(self, name, pair)
        if self.speed[0] <= 0:
            raise SettingError(f"speed={self.speed}; expected above 0")
        shares = {f.name: (0.0, 1.0) for f in fields(self) if f.name.endswith("_probability")}
        check_ranges("augmentation", self, shares | _RANGES)
        for name, (least, most) in _PAIR_RANGES.items():
            pair = getattr(self, name)
            if not least <= min(pair) <= max(pair) <= most:
                raise SettingError(f"augmentation: {name}={pair}; expected from {least:g} to {most:g}")


_RANGES = {
    "shift_ms": (0.0, 10_000.0), "rooms": (1, 10_000), "microphones": (1, 10_000), "overdrive_db": (0.0, 100.0),
    "dc": (0.0, 10.0), "coding_noise": (0.0, 100.0), "time_masks": (0, 100), "time_width": (0, math.inf),
    "band_masks": (0, 100), "band_width": (0, math.inf), "cutouts": (0, 100),
}  # fmt: skip
_PAIR_RANGES = {
    "white_noise_db": (-200.0, 0.0), "gain_db": (-200.0, 100.0), "background_snr_db": (-100.0, 200.0),
    "reverberation": (SHORTEST, 10.0), "stream_margin_ms": (0.0, 1000.0), "vocal_tract": (0.5, 2.0),
}  # fmt: skip
"""Beyond these a sound is nothing, all noise or too large a number, and there is no such room or mouth."""

Transform = Callable[[F32, np.random.Generator], F32]
"""One random change of a sound, float32 [n], or of its MFCC, [coefficients, frames].

It may change what it is given in place, and returns that or a new array. What it draws from the generator depends on
the settings alone, and one that is switched off by a setting added later draws nothing: so older recipes give the
batches that they always gave.
"""


def sample_transforms(
    settings: Augmentation, noises: Sequence[F32] | Sequence[I16], *, in_stream: bool = False
) -> list[Transform]:
    """What happens to a sound on its way to the network, in that order: its place, the room, the microphone.

    Parameters
    ----------
    noises : recordings as long as any window, float32 or int16 at 16 kHz; may be empty.
    in_stream : for windows of a stream, in which the word's place is drawn already.
    """
    s = settings
    place: list[Transform] = [
        partial(place_in_second, probability=s.pad_probability),
        partial(shift, most=int(s.shift_ms * SAMPLE_RATE / 1000)),
    ]
    return [
        *([] if in_stream else place),
        partial(in_room, probability=s.room_probability, count=s.rooms, reverberation=s.reverberation),
        partial(add_background, noises=noises, probability=s.background_probability, snr_db=s.background_snr_db),
        partial(through_microphone, probability=s.microphone_probability, count=s.microphones),
        partial(overdrive, probability=s.overdrive_probability, most_db=s.overdrive_db),
        partial(change_level, probability=s.gain_probability, gain_db=s.gain_db),
        partial(add_white_noise, level_db=s.white_noise_db),
        partial(add_offset, probability=s.dc_probability, most=s.dc),
        clip_to_full_scale,
    ]


def mfcc_transforms(settings: Augmentation) -> list[Transform]:
    """SpecAugment and SpecCutout: masked cells are zero."""
    s = settings
    return [
        *([partial(change_vocal_tract, factor=s.vocal_tract)] if s.vocal_tract != (1.0, 1.0) else []),
        partial(add_coding_noise, most=s.coding_noise),
        *[partial(mask_frames, widest=s.time_width)] * s.time_masks,
        *[partial(mask_coefficients, widest=s.band_width)] * s.band_masks,
        *[partial(cut_out, most=(s.band_width, s.time_width))] * s.cutouts,
    ]


def transformed(x: F32, transforms: Sequence[Transform], rng: np.random.Generator) -> F32:
    """What is left of a sound or its MFCC after one transform after the other; a new array."""
    x = x.copy()
    for transform in transforms:
        x = transform(x, rng)
    return x


def place_in_second(x: F32, rng: np.random.Generator, *, probability: float) -> F32:
    """Put a clip shorter than a second at a random place in a second of silence; else leave it at its length."""
    if len(x) >= CLIP_SAMPLES or rng.random() >= probability:
        return x
    out = np.zeros(CLIP_SAMPLES, np.float32)
    start = rng.integers(0, CLIP_SAMPLES - len(x) + 1)
    out[start : start + len(x)] = x
    return out


def shift(x: F32, rng: np.random.Generator, *, most: int) -> F32:
    """Move a clip by up to `most` samples either way; zeros come in."""
    by = int(rng.integers(-most, most + 1))
    out = np.zeros_like(x)
    if abs(by) < len(x):
        out[max(by, 0) : len(x) + min(by, 0)] = x[max(-by, 0) : len(x) - max(by, 0)]
    return out


def add_background(
    x: F32,
    rng: np.random.Generator,
    *,
    noises: Sequence[F32] | Sequence[I16],
    probability: float,
    snr_db: tuple[float, float],
) -> F32:
    """Add a stretch of a recorded noise, as loud as the ratio of the whole clips' powers says."""
    if noises and rng.random() < probability:
        noise = noises[int(rng.integers(len(noises)))]
        start = rng.integers(0, len(noise) - len(x) + 1)
        behind: Any = noise[start : start + len(x)]  # of either type
        x += scale_to_snr(behind if behind.dtype == np.float32 else as_float(behind), x, rng.uniform(*snr_db))
    return x


def change_level(x: F32, rng: np.random.Generator, *, probability: float, gain_db: tuple[float, float]) -> F32:
    """Make a sound louder or quieter."""
    if rng.random() < probability:
        x *= np.float32(10 ** (rng.uniform(*gain_db) / 20))
    return x


def add_white_noise(x: F32, rng: np.random.Generator, *, level_db: tuple[float, float]) -> F32:
    """Add Gaussian noise of this RMS, relative to full scale."""
    start = rng.integers(0, _WHITE_NOISE - len(x) + 1)
    x += np.float32(10 ** (rng.uniform(*level_db) / 20)) * _white_noise()[start : start + len(x)]
    return x


def add_offset(x: F32, rng: np.random.Generator, *, probability: float, most: float) -> F32:
    """Add a constant of up to `most` either way."""
    if rng.random() < probability:
        x += np.float32(rng.uniform(-most, most))
    return x


def clip_to_full_scale(x: F32, rng: np.random.Generator) -> F32:
    """Limit the samples to ±1, as a recorder does."""
    return np.clip(x, -1, 1, out=x)


def change_vocal_tract(mfcc: F32, rng: np.random.Generator, *, factor: tuple[float, float]) -> F32:
    """Stretch or squeeze the spectrum along the frequency axis, by one factor for all frames.

    Source: N. Jaitly and G. E. Hinton 2013, "Vocal Tract Length Perturbation (VTLP) improves speech recognition".
    """
    step = round(rng.uniform(*factor) / _TRACT_STEP)
    return _tract_warp(len(mfcc), step) @ mfcc


@lru_cache(maxsize=64)
def _tract_warp(coefficients: int, step: int) -> F32:
    """The change as a matrix on MFCC, float32 [coefficients, coefficients]: to log-mel, moved, and to MFCC again."""
    fe = FrontEnd()
    top = 2595 * math.log10(1 + fe.f_max / 700)
    mel = np.linspace(0, top, fe.n_mels + 2)[1:-1]
    hertz = 700 * (10 ** (mel / 2595) - 1) / (step * _TRACT_STEP)
    place = np.interp(2595 * np.log10(1 + hertz / 700), mel, np.arange(fe.n_mels))
    below = np.minimum(place.astype(np.int64), fe.n_mels - 2)
    move = np.zeros((fe.n_mels, fe.n_mels))
    move[np.arange(fe.n_mels), below] = 1 - (place - below)
    move[np.arange(fe.n_mels), below + 1] = place - below
    dct = dct_matrix(fe.n_mels, coefficients)
    return (dct.T @ move @ dct).astype(np.float32)


def add_coding_noise(mfcc: F32, rng: np.random.Generator, *, most: float) -> F32:
    """Disturb the coefficients as a codec does, by up to `most`.

    Opus at 24 kbit/s, after Opus at 34, changes MFCC by about 0.9 in the first coefficient and 0.3 in the last of 64
    where words are loud, by 1.5 and 0.4 where they are quiet (standard deviations, 20 clips of Speech Commands).
    """
    if not most:
        return mfcc
    profile = np.linspace(1, 1 / 3, len(mfcc), dtype=np.float32)[:, None] * np.float32(rng.uniform(0, most))
    mfcc += profile * rng.standard_normal(mfcc.shape, np.float32)
    return mfcc


def mask_frames(mfcc: F32, rng: np.random.Generator, *, widest: int) -> F32:
    """Zero up to `widest` neighbouring frames."""
    mfcc[:, _span(mfcc.shape[1], widest, rng)] = 0
    return mfcc


def mask_coefficients(mfcc: F32, rng: np.random.Generator, *, widest: int) -> F32:
    """Zero up to `widest` neighbouring coefficients."""
    mfcc[_span(mfcc.shape[0], widest, rng)] = 0
    return mfcc


def cut_out(mfcc: F32, rng: np.random.Generator, *, most: tuple[int, int]) -> F32:
    """Zero one rectangle, of at most so many coefficients and frames."""
    bands, frames = mfcc.shape
    mfcc[_span(bands, most[0], rng), _span(frames, most[1], rng)] = 0
    return mfcc


def at_speed(clip: F32, factor: float, most: int) -> F32:
    """A clip played `factor` times as fast, its pitch as much higher: float32 [n] → [n / factor], at most `most`.

    By linear interpolation: that it dulls the highest frequencies is one more change of the kind that microphones make.
    """
    n = min(most, int(len(clip) / factor))
    return np.interp(np.arange(n) * factor, np.arange(len(clip)), clip).astype(np.float32)


def in_stream(
    clip: F32,
    n: int,
    rng: np.random.Generator,
    neighbours: F32 | None = None,
    margins: tuple[int, int] = (WORD_MARGIN, WORD_MARGIN),
) -> F32:
    """A clip's word, whole, anywhere in a window that is longer than the clip.

    Parameters
    ----------
    clip : float32 [m], m at most n.
    neighbours : float32 [n], what else the window holds up to `WORD_MARGIN` before and after the word; None for
        silence around the clip.
    margins : samples that the window shows at least before and after the word, where there is room for both.

    Returns
    -------
    float32 [n], a new array.
    """
    start, end = speech_bounds(clip)
    room = n - (end - start)
    before, after = (min(margin, margin * room // max(1, sum(margins))) for margin in margins)
    at = int(rng.integers(before, room - after + 1))  # where the word begins in the window
    if neighbours is None:
        out = np.zeros(n, np.float32)
        first, last = 0, len(clip)
    else:
        out = neighbours.copy()
        first, last = max(0, start - WORD_MARGIN), min(len(clip), end + WORD_MARGIN)
    first, last = max(first, start - at), min(last, start - at + n)
    out[at - start + first : at - start + last] = clip[first:last]
    return out


def scale_to_snr(noise: F32, speech: F32, snr_db: float) -> F32:
    """Scale a noise so that the power ratio of the whole clips is `snr_db`. [n], [n] → [n]."""
    noise_power = float(np.mean(np.square(noise, dtype=np.float64)))
    speech_power = float(np.mean(np.square(speech, dtype=np.float64)))
    if noise_power == 0:
        return noise
    return noise * np.float32(np.sqrt(speech_power / noise_power) * 10 ** (-snr_db / 20))


@cache
def _white_noise() -> F32:
    """A minute of Gaussian noise of unit variance, of which every clip takes a stretch: drawing it anew costs more."""
    return np.random.default_rng(0).standard_normal(_WHITE_NOISE, dtype=np.float32)


def _span(size: int, widest: int, rng: np.random.Generator) -> Any:
    width = int(rng.integers(0, min(widest, size) + 1))
    start = int(rng.integers(0, size - width + 1))
    return slice(start, start + width)
