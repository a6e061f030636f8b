"""Flite (CMU, BSD style), run as a program: four compact English voices, a few hundredths of a second a word."""

import io
import shutil
from collections.abc import Iterator, Sequence

import numpy as np

from kws_edge.arrays import F32
from kws_export.data.credit import Credit
from kws_export.voices.engine import Rendition, run_program

_VOICES = ("slt", "rms", "awb", "kal16")


class Flite:
    """Flite."""

    name = "flite"
    credit = Credit("Flite and its voices slt, rms, awb, kal", "BSD style", "Carnegie Mellon University")
    takes_phonemes = False

    def missing(self) -> str | None:
        """None where the program is there."""
        return None if shutil.which("flite") else "install flite (Debian: apt install flite)"

    def voices(self, language: str) -> tuple[str, ...]:
        """The voices of English."""
        return _VOICES if language.split("-", maxsplit=1)[0] == "en" else ()

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        """One process for each, some 20 ms."""
        import tempfile
        from pathlib import Path

        import soundfile

        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "said.wav"
            for rendition in renditions:
                stretch = f"duration_stretch={1 / rendition.speed:.4f}"
                command = [
                    "flite",
                    "-voice",
                    rendition.voice,
                    "--setf",
                    stretch,
                    "-t",
                    rendition.utterance.text,
                    "-o",
                    str(file),
                ]
                run_program(command)
                samples, rate = soundfile.read(io.BytesIO(file.read_bytes()), dtype="float32")
                yield np.asarray(samples, np.float32), int(rate)
