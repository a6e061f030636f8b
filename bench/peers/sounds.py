"""What the peers hear: raw 16-bit mono at 16 kHz, the same for all, decided by a seed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load, read_blocks
from kws_edge.errors import AudioError
from kws_edge.tuning.soundscape import ROOM_LEVEL, compose

SNR = 10.0  # dB of a word over the speech behind it
GAP = (0.3, 1.0)  # s between words


def speech(data: Path, words: tuple[str, ...], seconds: float, seed: int) -> F32:
    """Words of the test split over read speech, without a pause in which a detector could rest.

    Parameters
    ----------
    data : holds speech_commands/ and libri_speech/test-other/.

    Returns
    -------
    float32 [round(seconds * 16000)]

    Raises
    ------
    AudioError : there are no such recordings.
    """
    clips = list(_test_clips(data, words))
    talk = sorted((data / "libri_speech" / "test-other").glob("*"))
    if not clips or not talk:
        raise AudioError(
            f"{data}: no test words or no read speech; expected speech_commands and libri_speech/test-other"
        )
    rng = np.random.default_rng(seed)
    chosen = (clips[i] for i in rng.integers(len(clips), size=round(seconds / GAP[0])))
    background = [load(talk[i]).samples for i in rng.permutation(len(talk))[: 1 + round(seconds / 5)]]
    said = ((path.parent.name, load(path).samples) for path in chosen)
    return take((part for part, _ in compose(said, seed=seed, gap=GAP, background=background, snr=SNR)), seconds)


def quiet(seconds: float, seed: int) -> F32:
    """A room in which nobody speaks: white noise at -66 dBFS."""
    rng = np.random.default_rng(seed)
    return (ROOM_LEVEL * rng.standard_normal(round(seconds * SAMPLE_RATE))).astype(np.float32)


def recording(path: Path, seconds: float) -> F32:
    """The beginning of a recording, from its start again where it is shorter."""
    return take((block for _ in iter(int, 1) for block in read_blocks(path)), seconds)


def said(data: Path, word: str, count: int, seed: int) -> list[F32]:
    """Recordings of a word or wake word, each with a second of silence before and after it."""
    wake = data / "wake_words" / word
    paths = sorted(wake.glob("*")) if wake.is_dir() else list(_test_clips(data, (word,)))
    rng = np.random.default_rng(seed)
    silence = np.zeros(SAMPLE_RATE, np.float32)
    return [np.concatenate([silence, load(paths[i]).samples, silence]) for i in rng.permutation(len(paths))[:count]]


def take(parts: Iterator[F32], seconds: float) -> F32:
    """The first so many seconds of what comes in parts; all of it where it is less."""
    wanted, taken = round(seconds * SAMPLE_RATE), []
    for part in parts:
        taken.append(part[:wanted])
        wanted -= len(taken[-1])
        if not wanted:
            break
    return np.concatenate(taken)


def write(samples: F32, path: Path) -> Path:
    """As raw PCM."""
    path.write_bytes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return path


def _test_clips(data: Path, words: tuple[str, ...]) -> Iterator[Path]:
    folder = data / "speech_commands"
    names = (folder / "testing_list.txt").read_text().split() if folder.is_dir() else []
    for name in names:
        if name.split("/")[0] in words:
            # The list may name .wav where the recordings were packed otherwise.
            path = folder / name
            yield path if path.exists() else next(islice(path.parent.glob(f"{path.stem}.*"), 1))
