"""The front end: 16 kHz samples to mel-frequency cepstral coefficients, for a whole clip and one hop at a time.

Each frame depends on its own 400 samples alone (no pre-emphasis, no normalisation, no padded last frame), so a stream
gives exactly the frames of the whole clip. The arithmetic is that of python_speech_features.mfcc with
winfunc=hanning, nfft=512, nfilt=numcep=64, preemph=0, ceplifter=0, appendEnergy=False; in particular the power
spectrum is divided by the FFT size. It runs in float64: in float32 the rounding of a loud frame's FFT shows in the
logarithm of its quietest filters.
"""

import math
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, F64
from kws_edge.errors import AudioError, SettingError, check_names
from kws_edge.text import shown

MAX_N_FFT = 8192
"""Half a second at 16 kHz: a larger one in a model file is a damaged file, and must not cost its memory."""

_BLOCK = 14
"""Frames per matrix product: it stays in cache, and below the size (2^18 multiplications) at which OpenBLAS wakes its
thread pool, which on a busy machine costs up to a hundred times the product itself."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Settings of the front end, kept in every model file. Lengths are in samples, frequencies in Hz.

    `log_floor` bounds the filter energies from below before the logarithm. 1e-10 is what white noise at about
    -95 dBFS leaves in a filter: just above the rounding noise of 16-bit audio, so nothing that a 16-bit recording
    holds is lost, digital silence is finite, and two decoders of the same quiet clip agree.
    """

    sample_rate: int = 16_000
    window: int = 400  # 25 ms
    hop: int = 160  # 10 ms
    n_fft: int = 512
    n_mels: int = 64
    n_mfcc: int = 64
    f_min: float = 0.0
    f_max: float = 8_000.0
    log_floor: float = 1e-10
    frames: int = 128  # what the network sees; a 1 s clip has 98, the rest is padding

    def __post_init__(self) -> None:
        """Refuse settings that cannot be meant, instead of truncating in silence."""
        for f in fields(self):
            value, kinds = getattr(self, f.name), (int, float) if f.type is float else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise SettingError(f"{f.name}={shown(value)}; expected {' or '.join(kind.__name__ for kind in kinds)}")
        if not 0 < self.window <= self.n_fft:
            raise SettingError(f"window of {self.window} samples does not fit n_fft={self.n_fft}; expected 1 to n_fft")
        if not 0 < self.hop <= self.window:
            raise SettingError(f"hop of {self.hop} samples; expected 1 to the window's {self.window}")
        if not 0 < self.n_mfcc <= self.n_mels:
            raise SettingError(f"n_mfcc={self.n_mfcc}; expected 1 to n_mels={self.n_mels}")
        if not 0 <= self.f_min < self.f_max <= self.sample_rate / 2:
            raise SettingError(
                f"band {self.f_min}-{self.f_max} Hz; expected 0 <= f_min < f_max <= {self.sample_rate / 2} Hz"
            )
        if not 0 < self.log_floor <= 1:
            raise SettingError(f"log_floor={str(self.log_floor)[:20]}; expected a number above 0, at most 1")
        if self.n_fft > MAX_N_FFT or self.n_mels > self.n_fft // 2 + 1:
            raise SettingError(
                f"n_fft={self.n_fft}, n_mels={self.n_mels}; expected n_fft up to {MAX_N_FFT}, no more filters than bins"
            )
        if self.frames < 1:
            raise SettingError(f"frames={self.frames}; expected at least 1")
        deaf = np.flatnonzero(~mel_filterbank(self).any(axis=0))
        if len(deaf):
            listed = ", ".join(map(str, deaf[:8] + 1)) + (", …" if len(deaf) > 8 else "")
            raise SettingError(
                f"n_mels={self.n_mels}, n_fft={self.n_fft}, {self.f_min:g} to {self.f_max:g} Hz: no FFT bin lies in "
                f"filter {listed} of {self.n_mels}; expected fewer filters, a wider band or a larger n_fft"
            )

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "FrontEnd":
        """Rebuild from `to_dict`. Raises SettingError for a missing, unknown or impossible setting."""
        check_names("front-end settings", settings, [f.name for f in fields(cls)])
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON types."""
        return asdict(self)

    def frame_count(self, samples: int) -> int:
        """How many complete frames a clip of so many samples has."""
        return max(0, 1 + (samples - self.window) // self.hop)

    @property
    def max_samples(self) -> int:
        """The longest clip whose frames all fit in `frames`: one more hop would be cut."""
        return self.window + self.frames * self.hop - 1

    def fits(self, samples: int) -> bool:
        """Whether a clip of so many samples is one window: at least one frame, and no more than the network's input."""
        return self.window <= samples <= self.max_samples


@lru_cache(maxsize=4)
def mel_filterbank(front_end: FrontEnd) -> F64:
    """Triangular filters, [n_fft/2 + 1, n_mels], on the HTK mel scale, with edges rounded down to FFT bins.

    Source: python_speech_features.get_filterbanks, whose rounding is part of the definition.
    """
    fe = front_end
    low, high = (2595 * math.log10(1 + f / 700) for f in (fe.f_min, fe.f_max))
    mel = np.linspace(low, high, fe.n_mels + 2)
    edges = np.floor((fe.n_fft + 1) * 700 * (10 ** (mel / 2595) - 1) / fe.sample_rate)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    bins = np.arange(fe.n_fft // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = (bins - left) / (centre - left)
        falling = (right - bins) / (right - centre)
    return np.where((bins >= left) & (bins < centre), rising, np.where((bins >= centre) & (bins < right), falling, 0.0))


@lru_cache(maxsize=4)
def dct_matrix(n_mels: int, n_mfcc: int) -> F64:
    """The orthonormal DCT-II as a matrix, [n_mels, n_mfcc]: coefficients = log_mel @ matrix."""
    n, k = np.arange(n_mels)[:, None], np.arange(n_mfcc)[None, :]
    basis = np.sqrt(2 / n_mels) * np.cos(np.pi * k * (2 * n + 1) / (2 * n_mels))
    basis[:, 0] = np.sqrt(1 / n_mels)
    return basis


def mfcc(samples: npt.ArrayLike, front_end: FrontEnd = FrontEnd()) -> F32:
    """MFCC of all complete frames of a clip.

    Parameters
    ----------
    samples : [n] mono at `front_end.sample_rate`, floating point, full scale ±1.

    Returns
    -------
    float32 [frame_count(n), n_mfcc]; no rows where n is shorter than one window.

    Raises
    ------
    AudioError : the samples are not mono, or are integers, whose full scale is not ±1.
    """
    fe = front_end
    x = _check(np.asarray(samples)).astype(np.float64)
    if x.size < fe.window:
        return np.empty((0, fe.n_mfcc), np.float32)
    return FrameMFCC(fe)(np.lib.stride_tricks.sliding_window_view(x, fe.window)[:: fe.hop])


class FrameMFCC:
    """MFCC of frames that are cut already. Not for use by several threads at once: it works in place."""

    def __init__(self, front_end: FrontEnd) -> None:
        """Have the tables of a front end at hand."""
        fe = front_end
        self._padded = np.zeros((_BLOCK, fe.n_fft))  # zeros stay after each frame
        self._windowed, self._hann = self._padded[:, : fe.window], _hann(fe.window)
        self._mel, self._dct = _scaled_filterbank(fe), dct_matrix(fe.n_mels, fe.n_mfcc)
        self._floor = fe.log_floor

    def __call__(self, frames: F64) -> F32:
        """Float64 [n, window] → float32 [n, n_mfcc]."""
        out = np.empty((len(frames), self._dct.shape[1]), np.float32)
        for i in range(0, len(frames), _BLOCK):
            block = frames[i : i + _BLOCK]
            np.multiply(block, self._hann, out=self._windowed[: len(block)])
            parts = np.fft.rfft(self._padded[: len(block)]).view(np.float64)  # real and imaginary in turn
            parts *= parts
            energy = (parts[:, ::2] + parts[:, 1::2]) @ self._mel
            out[i : i + _BLOCK] = np.log(np.maximum(energy, self._floor)) @ self._dct
        return out


def pad(coefficients: F32, front_end: FrontEnd = FrontEnd()) -> F32:
    """Centre a clip's frames between columns of zeros: [n, n_mfcc] → [n_mfcc, frames], the network's input.

    An odd frame of padding goes to the right. Raises AudioError where there are no frames, or more than fit.
    """
    n = len(coefficients)
    if not 0 < n <= front_end.frames:
        raise AudioError(f"{n} frames; expected 1 to {front_end.frames} for one window")
    left = (front_end.frames - n) // 2
    out = np.zeros((front_end.n_mfcc, front_end.frames), np.float32)
    out[:, left : left + n] = coefficients.T
    return out


class MFCCStream:
    """The front end one push at a time: keeps the samples that the next frame still needs, and nothing else."""

    def __init__(self, front_end: FrontEnd = FrontEnd()) -> None:
        """Start with an empty past."""
        self.front_end = front_end
        self.reset()

    def reset(self) -> None:
        """Forget the past: the next frame starts at the next sample."""
        self._tail: npt.NDArray[Any] = np.empty(0, np.float32)

    def push(self, samples: npt.NDArray[Any]) -> F32:
        """Take any number of samples, return the frames that they complete: float32 [m, n_mfcc], m may be 0.

        The samples are as for `mfcc`, and so are the errors.
        """
        x = np.concatenate([self._tail, _check(samples)])
        out = mfcc(x, self.front_end)
        self._tail = x[len(out) * self.front_end.hop :].copy()  # a view would keep the whole push in memory
        return out


def _check(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if samples.ndim != 1:
        raise AudioError(f"samples of shape {samples.shape}; expected one dimension (mono)")
    if not np.issubdtype(samples.dtype, np.floating):
        raise AudioError(f"samples of type {samples.dtype}; expected floating point, full scale ±1")
    return samples


@lru_cache(maxsize=4)
def _scaled_filterbank(front_end: FrontEnd) -> F64:
    return mel_filterbank(front_end) / front_end.n_fft


@lru_cache(maxsize=4)
def _hann(window: int) -> F64:
    return np.hanning(window)
