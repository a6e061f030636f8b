"""`kws-export speak`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kws_export.voices import Utterance


@click.command()
@click.argument("texts", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; TEXT/*.wav are made below it.")
@click.option("--takes", type=click.IntRange(1), default=20, show_default=True, help="Of each text, by each engine.")
@click.option(
    "--voices",
    default="auto",
    show_default=True,
    help="Or some of kokoro,festival,flite,espeak.",
)
@click.option("--near-misses", type=click.IntRange(1), help="Say this many words that sound like each TEXT instead.")
@click.option("--phonemes", default="", help="How the one TEXT is pronounced, in espeak-ng's notation.")
@click.option("--language", default="en-us", show_default=True, help="As espeak-ng calls it: en-us, en-gb, de, nl.")
@click.option("--seed", type=int, default=1, show_default=True)
def speak(
    texts: tuple[str, ...],
    out: Path,
    takes: int,
    voices: str,
    near_misses: int | None,
    phonemes: str,
    language: str,
    seed: int,
) -> None:
    """Have synthesised voices say TEXTS, in many voices, speeds and pitches: 16 kHz WAV files.

    Existing files are kept, so a run that was stopped continues from there.

    \b
    Twenty takes of a phrase by every engine that is installed:
      kws-export speak "hey lamp" --out said
    Words that a spotter might take for these, three takes each:
      kws-export speak yes no stop --near-misses 40 --takes 3 --out near
    A name, as it is pronounced (espeak-ng -q -x prints this notation):
      kws-export speak Siobhan --phonemes "SIv'O:n" --out said
    """
    from rich.console import Console
    from rich.progress import Progress

    from kws_edge.errors import SettingError
    from kws_export.texts import check_texts, folder_name
    from kws_export.voices import Utterance, get_engines
    from kws_export.voices.casting import cast
    from kws_export.voices.files import write_renditions

    check_texts(texts)
    if phonemes and (len(texts) > 1 or near_misses):
        raise SettingError("--phonemes go with one TEXT, spoken as it is; expected no other TEXT and no --near-misses")
    engines = get_engines(voices.split(","), language=language, phonemes=bool(phonemes))
    said = {text: [Utterance(text, phonemes, language)] for text in texts}
    if near_misses:
        said = _near(texts, near_misses, language)
    with Progress(console=Console(stderr=True)) as progress:
        made = 0
        for engine in reversed(engines):  # the fastest first
            task = progress.add_task(engine.name, total=takes * sum(map(len, said.values())))
            for i, (text, utterances) in enumerate(said.items()):
                for _ in write_renditions(engine, cast(engine, utterances, takes, [seed, i]), out / folder_name(text)):
                    progress.advance(task)
                    made += 1
    click.echo(f"{made:,} clips of {len(said)} texts in {out}")


def _near(texts: tuple[str, ...], count: int, language: str) -> "dict[str, list[Utterance]]":
    from kws_export.phonemes import Dictionary, near_misses
    from kws_export.voices import Utterance
    from kws_export.voices.espeak import transcribe

    dictionary = Dictionary.load(language)
    said = dict(zip(texts, transcribe(texts, language), strict=True))
    found = {t: near_misses(said[t], dictionary, count, tuple(said[o] for o in texts if o != t)) for t in texts}
    return {text: [Utterance(miss.text, "", language) for miss in misses] for text, misses in found.items()}
