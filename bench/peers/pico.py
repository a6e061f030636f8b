"""Takes of a phrase by Pico, a speech synthesiser that no model here was trained on.

    pip install py-nanotts==0.1.1
    python bench/peers/pico.py "hey jarvis" --takes 48 --out takes

They lie beside those of `kws-export speak`, in OUT/TEXT, and are made as they are: speeds and pitches drawn from the
same ranges, the ends trimmed, one peak for all.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.text import folder_name
from kws_export.data.credit import Credit
from kws_export.voices.casting import cast
from kws_export.voices.engine import Rendition, Utterance
from kws_export.voices.files import write_renditions


class Pico:
    """SVOX Pico's two English voices."""

    name = "pico"
    credit = Credit("SVOX Pico", "Apache-2.0", "SVOX")
    takes_phonemes = False

    def missing(self) -> str | None:
        return None

    def voices(self, language: str) -> tuple[str, ...]:
        return ("en-US", "en-GB") if language.startswith("en") else ()

    def render(self, renditions: Sequence[Rendition]) -> Iterator[tuple[F32, int]]:
        import py_nanotts

        engine = py_nanotts.NanoTTS()
        for rendition in renditions:
            pcm = engine.speak(rendition.utterance.text, voice=rendition.voice, speed=rendition.speed)
            yield as_float(np.frombuffer(pcm, np.int16)), SAMPLE_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--takes", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    renditions = cast(Pico(), [Utterance(args.text)], args.takes, [args.seed])
    written = list(write_renditions(Pico(), renditions, args.out / folder_name(args.text)))
    print(f"{len(written)} takes in {args.out / folder_name(args.text)}")


if __name__ == "__main__":
    main()
