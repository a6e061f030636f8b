"""Spoken renditions as files, one WAV each, made once."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from kws_edge.audio.wav import as_wav
from kws_edge.files import replace_file
from kws_edge.text import folder_name
from kws_export.voices.casting import perform
from kws_export.voices.engine import Engine, Rendition, Utterance


def write_renditions(engine: Engine, renditions: Sequence[Rendition], folder: Path) -> Iterator[Path]:
    """Write each rendition that is not there yet as 16-bit WAV at 16 kHz; its path follows once it is on disk.

    The name holds who says what: `FOLDER/ENGINE-VOICE_nohash_N-TEXT.wav` in the layout of Speech Commands, so
    that a voice counts as one speaker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / _name(engine, rendition, i) for i, rendition in enumerate(renditions)]
    lacking = [(path, rendition) for path, rendition in zip(paths, renditions, strict=True) if not path.is_file()]
    yield from (path for path in paths if path.is_file())
    where = {id(rendition): path for path, rendition in lacking}
    for rendition, samples in perform(
        engine, [rendition for _, rendition in lacking], spoken=len(paths) - len(lacking)
    ):
        path = where[id(rendition)]
        replace_file(path, as_wav(samples))
        yield path


def _name(engine: Engine, rendition: Rendition, index: int) -> str:
    return f"{engine.name}-{rendition.voice}_nohash_{index}-{_said(rendition.utterance)}.wav"


def _said(utterance: Utterance) -> str:
    """The text; with a hash where the name alone would not tell two utterances apart."""
    name = folder_name(utterance.text)
    language = "" if utterance.language == "en-us" else f"/{utterance.language}"
    if name == "_".join(utterance.text.split()) and not utterance.phonemes and not language:
        return name
    whole = f"{utterance.text}/{utterance.phonemes}{language}".encode()
    return f"{name}-{hashlib.sha1(whole, usedforsecurity=False).hexdigest()[:8]}"
