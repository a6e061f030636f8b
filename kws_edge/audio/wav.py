"""Write sound as a file in memory."""

import io

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE


def as_wav(samples: F32) -> bytes:
    """Samples, float32 [n], mono at 16 kHz, as a 16-bit WAV file; what is beyond full scale is clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from kws_edge.audio.load import load
    >>> from kws_edge.audio.wav import as_wav
    >>> load(as_wav(np.zeros(1600, np.float32))).samples.shape
    (1600,)
    """
    import soundfile  # 3 MB, which a microphone does not need

    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()
