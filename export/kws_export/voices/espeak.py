"""espeak-ng (GPL-3), run as a program: formant synthesis in over a hundred languages, and their phonemes."""

import io
import shutil
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import DependencyError
from kws_export.data.credit import Credit
from kws_export.voices.engine import Rendition, Utterance, run_program

PROGRAM = "espeak-ng"
INSTALL = "install espeak-ng (Debian: apt install espeak-ng)"
WORDS_A_MINUTE = 160

_UNNATURAL = ("announcer", "croak", "Demonic", "fast", "Robo", "robo", "Robot", "UniRobot", "whisper")
"""Parts of the names of variants that no one speaks like."""


class Espeak:
    """espeak-ng's variants are its voices: `f1`, `Annie`, `max`, on whatever language."""

    name = "espeak"
    credit = Credit("espeak-ng", "GPL-3.0, the program; what it says is free of it", "the authors of espeak-ng")
    takes_phonemes = True

    def missing(self) -> str | None:
        """None where the program is there."""
        return None if shutil.which(PROGRAM) else INSTALL

    def voices(self, language: str) -> tuple[str, ...]:
        """The variants, the same for every language that espeak-ng knows."""
        return _variants() if language in languages() else ()

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        """One process for each, some 10 ms."""
        import soundfile

        for rendition in renditions:
            u = rendition.utterance
            said = f"[[{u.phonemes}]]" if u.phonemes else u.text
            speed = str(round(WORDS_A_MINUTE * rendition.speed))
            voice = f"{u.language}+{rendition.voice}"
            wave = run_program([PROGRAM, "-v", voice, "-s", speed, "--stdin", "--stdout"], said)
            samples, rate = soundfile.read(io.BytesIO(wave), dtype="float32")
            yield np.asarray(samples, np.float32), int(rate)


def transcribe(texts: Sequence[str], language: str) -> list[str]:
    """How texts are pronounced, in the International Phonetic Alphabet with stress marks, one for each.

    Raises
    ------
    DependencyError : there is no espeak-ng.
    VoiceError : it does not know the language.
    """
    if not shutil.which(PROGRAM):
        raise DependencyError(f"the pronunciation of a word needs espeak-ng, which is not there: {INSTALL}")
    if not texts:
        return []
    command = [PROGRAM, "-q", "--ipa", "-v", language, "--stdin"]
    # An empty line between two texts ends a clause, and each clause is a line of the answer. A text that makes several
    # (of punctuation, say) would shift all that follow: those are asked for one by one.
    lines = run_program(command, "\n\n".join(texts), timeout=600).decode().splitlines()
    if len(lines) != len(texts):
        lines = [" ".join(run_program(command, text).decode().split()) for text in texts]
    return [line.strip() for line in lines]


def pronounce(utterance: Utterance) -> str:
    """An utterance's pronunciation as `transcribe` gives it, by its phonemes where it has some."""
    said = f"[[{utterance.phonemes}]]" if utterance.phonemes else utterance.text
    return " ".join(transcribe([said], utterance.language))


@cache
def _variants() -> tuple[str, ...]:
    lines = run_program([PROGRAM, "--voices=variant"]).decode().splitlines()[1:]
    names = [part.removeprefix("!v/") for line in lines for part in line.split() if part.startswith("!v/")]
    return tuple(sorted(name for name in names if not any(part in name for part in _UNNATURAL)))


@cache
def languages() -> frozenset[str]:
    """The languages that espeak-ng knows: `en-us`, `de`, `nl` …"""
    lines = run_program([PROGRAM, "--voices"]).decode().splitlines()[1:]
    return frozenset(line.split()[1] for line in lines if len(line.split()) > 1)
