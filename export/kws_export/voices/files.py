"""Spoken renditions as files, one WAV each, made once."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kws_export.voices.casting import perform
from kws_export.voices.engine import SAMPLE_RATE, Engine, Rendition


def write_renditions(engine: Engine, renditions: Sequence[Rendition], folder: Path) -> Iterator[Path]:
    """Write each rendition that is not there yet as 16-bit WAV at 16 kHz; its path follows once it is on disk.

    The name holds who says what: `FOLDER/ENGINE-VOICE_nohash_N-TEXT.wav` in the layout of Speech Commands, so
    that a voice counts as one speaker.
    """
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / _name(engine, rendition, i) for i, rendition in enumerate(renditions)]
    lacking = [(path, rendition) for path, rendition in zip(paths, renditions, strict=True) if not path.is_file()]
    yield from (path for path in paths if path.is_file())
    where = {id(rendition): path for path, rendition in lacking}
    for rendition, samples in perform(engine, [rendition for _, rendition in lacking]):
        path = where[id(rendition)]
        partial = path.with_suffix(f".{os.getpid()}.partial")
        soundfile.write(partial, samples, SAMPLE_RATE, subtype="PCM_16", format="WAV")
        partial.replace(path)
        yield path


def _name(engine: Engine, rendition: Rendition, index: int) -> str:
    return f"{engine.name}-{rendition.voice}_nohash_{index}-{folder_name(rendition.utterance.text)}.wav"


def folder_name(text: str) -> str:
    """A text as a part of a path: of any script, without what a file system or a list of files gives a meaning."""
    return "_".join("".join(c if c.isalnum() else " " for c in text).split()) or "_"
