"""Convert samples between integers and floating point with a full scale of ±1.

Integers are divided by 2**(bits - 1); unsigned 8-bit has its zero at 128.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, I16
from kws_edge.errors import AudioError

MAX_PEAK: Final = 16.0
"""24 dB over full scale; beyond it, floating-point samples are integers that somebody forgot to scale."""
STEP: Final = 1 / 32768
"""A step of 16-bit audio, as a fraction of full scale."""

_ZERO_AND_SCALE = {"uint8": (128, 2**7), "int16": (0, 2**15), "int32": (0, 2**31)}
_ZERO_AND_SCALE |= {"float16": (0, 1), "float32": (0, 1), "float64": (0, 1)}


def as_float(samples: I16) -> F32:
    """int16 of full scale 32768 → float32 of full scale ±1, exactly; any shape."""
    return np.multiply(samples, np.float32(STEP), dtype=np.float32)


def as_int16(samples: F32) -> I16:
    """The other way, rounded; what is beyond full scale is clipped."""
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def check_peak(samples: npt.NDArray[Any]) -> None:
    """Raise AudioError where floating-point samples are NaN, infinite or far beyond full scale."""
    peak = float(np.maximum.reduce(np.abs(samples), initial=0))
    if not peak <= MAX_PEAK:
        raise AudioError(
            f"samples of up to {peak:g}; expected finite numbers with a full scale of ±1 (at most {MAX_PEAK:g})"
        )


def check_type(samples: npt.NDArray[Any]) -> None:
    """Raise AudioError unless `scaled` takes arrays of this type."""
    if samples.dtype.name not in _ZERO_AND_SCALE:
        raise AudioError(f"array of {samples.dtype}; expected one of {', '.join(_ZERO_AND_SCALE)}")


def scaled(samples: npt.NDArray[Any]) -> F32:
    """An array of a type that `check_type` lets pass, of any shape → float32 of full scale ±1."""
    zero, scale = _ZERO_AND_SCALE[samples.dtype.name]
    with np.errstate(over="ignore"):  # a float64 too large becomes infinite, which the caller refuses
        return ((samples.astype(np.float64) - zero) / scale).astype(np.float32)


def mistaken_scale(kind: str, peak: float) -> str | None:
    """What a clip looks like that is silent because its numbers were scaled wrongly; None where it does not.

    Parameters
    ----------
    kind : the type of an array, such as "int16"; "" for a file.
    peak : its largest sample, as a fraction of full scale.
    """
    if kind == "int32" and 0 < peak <= 2.0**-16:
        return "int32 samples that never leave the range of int16; expected a full scale of 2**31: give them as int16"
    if not 0 < peak <= STEP:
        return None
    if kind.startswith("float"):
        return f"floating-point samples of up to {peak:.1e}; expected a full scale of ±1: were they divided twice?"
    return "no 16-bit sample but -1, 0 and 1: floating-point samples cast to integers look so; multiply by 32767 first"
