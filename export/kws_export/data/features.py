"""A clip's features for training: what kws_edge.model.features gives, through features.c where it can be compiled.

At several hundred clips a second the front end would cost as much as the network; compiled, it is a tenth of it.
"""

import ctypes
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.model.features import FrontEnd, dct_matrix, mel_filterbank, mfcc, pad
from kws_export.kernels import compiled as kernels

_SOURCE = kernels.FOLDER / "features.c"
_N_FFT, _MAX_MELS = 512, 128  # what features.c is written for


def window_features(samples: F32, front_end: FrontEnd) -> F32:
    """The network's input for one clip: float32 [n] → [n_mfcc, frames]; equals kws_edge's pad(mfcc(samples)) to 1e-4.

    Raises
    ------
    AudioError : the clip has no frame, or more than fit.
    """
    compiled = _tables(front_end)
    n = front_end.frame_count(len(samples))
    if compiled is None or not 0 < n <= front_end.frames:
        return pad(mfcc(samples, front_end), front_end)
    library, struct, _arrays = compiled
    x = np.ascontiguousarray(samples, np.float32)
    out = np.zeros((front_end.n_mfcc, front_end.frames), np.float32)
    start = out[:, (front_end.frames - n) // 2 :]
    library.mfcc(
        _pointer(x), ctypes.c_int64(n), ctypes.byref(struct), _pointer(start), ctypes.c_int64(front_end.frames)
    )
    return out


def frames_of(blocks: Iterable[F32], front_end: FrontEnd) -> Iterator[F32]:
    """All frames of a sound of any length that comes in blocks of any size: float32 [coefficients, up to `frames`]."""
    step, size = front_end.frames * front_end.hop, (front_end.frames - 1) * front_end.hop + front_end.window
    rest = np.empty(0, np.float32)
    for block in blocks:
        rest = np.concatenate([rest, block])
        start = 0
        while start + size <= len(rest):
            yield window_features(rest[start : start + size], front_end)
            start += step
        rest = rest[start:].copy()
    if (count := front_end.frame_count(len(rest))) > 0:
        left = (front_end.frames - count) // 2
        yield window_features(rest, front_end)[:, left : left + count]


class _FrontEnd(ctypes.Structure):
    """The struct of features.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("window", "hop", "n_mels", "n_mfcc")),
        ("log_floor", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("hann", "twiddle", "first", "count", "weights", "dct")),
    ]


@lru_cache(maxsize=4)
def _tables(fe: FrontEnd) -> tuple[ctypes.CDLL, _FrontEnd, tuple[npt.NDArray[Any], ...]] | None:
    """The library, its tables, and the arrays that they point to; None where it cannot serve."""
    library = kernels.library(_SOURCE)
    if library is None or fe.n_fft != _N_FFT or fe.n_mels > _MAX_MELS:
        return None
    angle = 2 * np.pi * np.arange(fe.n_fft // 2) / fe.n_fft
    twiddle = np.stack([np.cos(angle), -np.sin(angle)], axis=1)
    mel = mel_filterbank(fe)
    used = [np.flatnonzero(column) for column in mel.T]
    first = np.array([bins[0] if len(bins) else 0 for bins in used], np.int64)
    count = np.array([bins[-1] - bins[0] + 1 if len(bins) else 0 for bins in used], np.int64)
    weights = np.concatenate([mel[f : f + c, j] for j, (f, c) in enumerate(zip(first, count, strict=True))])
    dct = np.ascontiguousarray(dct_matrix(fe.n_mels, fe.n_mfcc).T)
    arrays = (np.hanning(fe.window), twiddle, first, count, weights, dct)
    sizes = (fe.window, fe.hop, fe.n_mels, fe.n_mfcc, fe.log_floor)
    return library, _FrontEnd(*sizes, *(a.ctypes.data for a in arrays)), arrays


def _pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
