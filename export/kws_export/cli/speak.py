"""`kws-export speak`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.text import counted
from kws_export.cli.options import language_option, phonemes_option, voices_option

if TYPE_CHECKING:
    from kws_export.voices import Utterance


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Write FOLDER/TEXT/*.wav."
)
@click.option(
    "--takes",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Recordings of each text by each synthesiser.",
)
@voices_option
@click.option(
    "--near-misses",
    type=click.IntRange(1),
    metavar="N",
    help="Instead of each TEXT, say N words that sound like it.",
)
@click.option(
    "--varied",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Share of Kokoro's recordings with the intonation of another voice, half of them with a foreign accent.",
)
@phonemes_option
@language_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="Seed for drawing voices, speeds and pitches.",
)
def speak(
    texts: tuple[str, ...],
    out: Path,
    takes: int,
    voices: str,
    near_misses: int | None,
    varied: float,
    phonemes: str,
    language: str,
    seed: int,
) -> None:
    """Synthesise recordings of each TEXT in many voices.

    Speeds and pitches vary too; the recordings are WAV files of 16 kHz. Existing files are kept, so a run that was
    stopped continues.

    \b
    Twenty recordings of a phrase by each synthesiser that is installed:
      kws-export speak "hey lamp" --out said
    Words that might be mistaken for these, three recordings each:
      kws-export speak yes no stop --near-misses 40 --takes 3 --out near
    A name with its pronunciation (espeak-ng -q -x prints this notation):
      kws-export speak Siobhan --phonemes "SIv'O:n" --out said
    """
    from rich.console import Console
    from rich.progress import Progress

    from kws_edge.errors import SettingError
    from kws_edge.text import folder_name
    from kws_export.texts import check_phonemes, check_texts
    from kws_export.voices import Utterance, get_engines
    from kws_export.voices.casting import cast
    from kws_export.voices.files import write_renditions

    check_texts(texts)
    check_phonemes(phonemes)
    if phonemes and (len(texts) > 1 or near_misses):
        raise SettingError(
            "--phonemes is the pronunciation of one TEXT; it cannot be used with several, or with --near-misses"
        )
    engines = get_engines(voices.split(","), language=language, phonemes=bool(phonemes))
    if not engines:
        raise SettingError("--voices none leaves nobody to speak; expected auto, or some synthesisers")
    said = {text: [Utterance(text, phonemes, language)] for text in texts}
    if near_misses:
        said = _near(texts, near_misses, language)
        if not any(said.values()):
            raise SettingError(f"no word of {language} sounds like {', '.join(texts)}; expected other texts")
    with Progress(console=Console(stderr=True)) as progress:
        made = 0
        for engine in reversed(engines):  # the fastest first
            task = progress.add_task(engine.name, total=takes * sum(map(len, said.values())))
            for i, (text, utterances) in enumerate(said.items()):
                renditions = cast(engine, utterances, takes, [seed, i], varied=varied)
                for _ in write_renditions(engine, renditions, out / folder_name(text)):
                    progress.advance(task)
                    made += 1
    click.echo(f"{counted(made, 'clip')} of {counted(len(said), 'text')} in {out}")


def _near(texts: tuple[str, ...], count: int, language: str) -> "dict[str, list[Utterance]]":
    from kws_export.phonemes import Dictionary, near_misses
    from kws_export.voices import Utterance
    from kws_export.voices.espeak import transcribe

    dictionary = Dictionary.load(language)
    said = dict(zip(texts, transcribe(texts, language), strict=True))
    found = {t: near_misses(said[t], dictionary, count, tuple(said[o] for o in texts if o != t)) for t in texts}
    return {text: [Utterance(miss.text, "", language) for miss in misses] for text, misses in found.items()}
