"""The samples of a client's stream: binary messages of PCM at its rate, to float32 at 16 kHz."""

from dataclasses import dataclass

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.pcm import as_float, check_peak
from kws_edge.audio.resample import Resampler
from kws_edge.errors import AudioError


@dataclass
class Pcm:
    """Turns binary messages into samples at 16 kHz.

    Attributes
    ----------
    rate : of the client's samples, Hz.
    encoding : "int16" or "float32", little-endian, mono.
    """

    rate: int
    encoding: str

    def __post_init__(self) -> None:
        """Start."""
        self._dtype = np.dtype("<i2" if self.encoding == "int16" else "<f4")
        self.reset()

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return self._dtype.itemsize

    def reset(self) -> None:
        """Forget what was before, as after a gap."""
        self._resampler = Resampler(self.rate)

    def decode(self, message: bytes) -> F32:
        """The samples float32 [n], full scale ±1.

        Raises
        ------
        AudioError : the message does not hold whole samples, or some are NaN, infinite or far beyond full scale.
        """
        if len(message) % self.width:
            raise AudioError(f"a message of {len(message)} bytes; expected whole {self.encoding} samples")
        given = np.frombuffer(message, self._dtype)
        samples = as_float(given) if self.encoding == "int16" else given.astype(np.float32)
        check_peak(samples)  # before they poison the resampler
        return self._resampler.push(samples)

    def flush(self) -> F32:
        """What the resampler still holds, at the end of the stream."""
        return self._resampler.finish()
