"""Festival (CSTR, BSD style), run as a program: an HMM voice and two of diphones, in English."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kws_edge.arrays import F32
from kws_export.data.credit import Credit
from kws_export.voices.engine import Rendition, run_program

_PACKAGES = {
    "cmu_us_slt_arctic_hts": "festvox-us-slt-hts",
    "kal_diphone": "festvox-kallpc16k",
    "ked_diphone": "festvox-kdlpc16k",
}
_BATCH = 50
"""Renditions to a process: enough to forget its start of half a second, few enough to see progress."""


class Festival:
    """Festival."""

    name = "festival"
    credit = Credit(
        "Festival voices cmu_us_slt_arctic_hts, kal_diphone, ked_diphone",
        "BSD style",
        "Carnegie Mellon University; Nagoya Institute of Technology (slt), University of Edinburgh (kal, ked)",
    )
    takes_phonemes = False

    def missing(self) -> str | None:
        """None where the program and a voice are there."""
        if shutil.which("festival") and _installed():
            return None
        return f"install festival and a voice (Debian: apt install festival {' '.join(_PACKAGES.values())})"

    def voices(self, language: str) -> tuple[str, ...]:
        """The English voices that are installed."""
        return _installed() if language.split("-", maxsplit=1)[0] == "en" else ()

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        """One process for each `_BATCH` renditions."""
        import soundfile

        for start in range(0, len(renditions), _BATCH):
            batch = renditions[start : start + _BATCH]
            with tempfile.TemporaryDirectory() as scratch:
                files = [Path(scratch) / f"{i}.wav" for i in range(len(batch))]
                script = Path(scratch) / "say.scm"
                script.write_text("\n".join(map(_lines, batch, files)), encoding="utf-8")
                run_program(["festival", "-b", str(script)], timeout=600)
                for file in files:
                    samples, rate = soundfile.read(file, dtype="float32")
                    yield np.asarray(samples, np.float32), int(rate)


def _lines(rendition: Rendition, file: Path) -> str:
    text = rendition.utterance.text.replace("\\", " ").replace('"', " ")
    return (
        f"(voice_{rendition.voice})\n(Parameter.set 'Duration_Stretch {1 / rendition.speed:.4f})\n"
        # The HMM voice takes its rate from a list of its own, which each call of the voice sets anew.
        f"(if (boundp 'hts_engine_params) (set! hts_engine_params"
        f' (append hts_engine_params (list (list "-r" {rendition.speed:.4f})))))\n'
        f'(set! said (SynthText "{text}"))\n(utt.save.wave said "{file}" \'riff)'
    )


def _installed() -> tuple[str, ...]:
    folders = Path("/usr/share/festival/voices"), Path("/usr/local/share/festival/voices")
    here = {voice.name for folder in folders if folder.is_dir() for voice in folder.glob("*/*")}
    return tuple(voice for voice in _PACKAGES if voice in here)
