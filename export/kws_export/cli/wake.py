"""`kws-export wake`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kws_edge.cli.options import Number, force_option
from kws_export.cli.options import (
    existing_file,
    existing_folder,
    language_option,
    phonemes_option,
    threads_option,
    voices_option,
)


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.onnx", help="Model file to write.")
@click.option(
    "--negatives",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Hours of speech without the word: a pack of `kws-export pack`, a folder or a file; repeatable.",
)
@click.option(
    "--recordings",
    type=existing_folder,
    metavar="FOLDER",
    help="Recordings by people: FOLDER/WORD/*, or FOLDER/* for one word.",
)
@click.option("--recordings-note", default="", metavar="TEXT", help="For the card: 'WHAT: BY WHOM (LICENCE)'.")
@voices_option
@click.option(
    "--takes",
    type=click.IntRange(1),
    default=600,
    show_default=True,
    metavar="N",
    help="Synthetic recordings of each word by Kokoro; the other synthesisers make fewer.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="TEXT",
    help="Another spelling to synthesise, such as 'hay lamp', as it is written; repeatable.",
)
@phonemes_option
@language_option
@click.option(
    "--near-misses",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="N",
    help="Similar-sounding phrases for each word.",
)
@click.option("--start", type=existing_file, metavar="FILE.onnx", help="Model to start from  [default: stream]")
@click.option("--epochs", type=click.IntRange(1), default=6, show_default=True, metavar="N", help="Number of epochs.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=120,
    show_default=True,
    metavar="N",
    help="Steps in an epoch, each on 128 windows.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Seed of everything random."
)
@click.option(
    "--false-accepts-per-hour",
    "limit",
    type=Number(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="RATE",
    help="Limit on held-out speech.",
)
@click.option(
    "--work", type=click.Path(path_type=Path), metavar="FOLDER", help="Intermediate files  [default: runs/wake-NAME]"
)
@force_option
@threads_option
def wake(
    texts: tuple[str, ...],
    out: Path,
    recordings: Path | None,
    recordings_note: str,
    voices: str,
    negatives: tuple[str, ...],
    also: tuple[str, ...],
    phonemes: str,
    language: str,
    takes: int,
    near_misses: int,
    epochs: int,
    steps: int,
    seed: int,
    limit: float,
    start: Path | None,
    work: Path | None,
    force: bool,
    threads: int | None,
) -> None:
    """Make a wake word model for a word or phrase of your own.

    It needs no recordings of the word, but is better with some. Speech synthesisers say every TEXT hundreds of times,
    in many voices, intonations and accents, along with words that sound like it. The shipped model is then trained on
    that, in simulated rooms, over the speech and sounds of the negatives. If you have recordings by people, they make
    up half of the training examples of the word. The best epoch and the threshold are chosen on held-out recordings.
    The command fails if the word cannot be told from other speech within --false-accepts-per-hour, and shows the
    trade-off it reached.

    Beside NAME.onnx it writes the card NAME.md, the trade-off curve NAME.svg, and NAME.step.onnx for streams. If it is
    stopped, the same command continues. The same seed gives the same model.

    By default it takes ten to twenty minutes on one core of a server (about a third each to synthesise, to train and to
    choose the threshold) and 2.5 GB of memory; at the end it says what it took.

    \b
    From text alone, with negatives packed by `kws-export pack`:
      kws-export wake "hey lamp" --negatives negatives.npz --out lamp.onnx
    With recordings by people, made by `kws-edge record` or named in any way:
      kws-export wake computer --recordings takes --negatives negatives.npz --out computer.onnx
    From recordings alone, even of one speaker:
      kws-export wake "open sesame" --voices none --recordings me --negatives negatives.npz --out open.onnx
    Two words in one model, in German; a name with its pronunciation:
      kws-export wake "Hallo Küche" Stopp --language de --negatives negatives.npz --out kueche.onnx
      kws-export wake Siobhan --phonemes "SIv'O:n" --negatives negatives.npz --out siobhan.onnx
    Listen for the word:
      kws-edge listen --model lamp.onnx
    """
    import torch

    from kws_edge import KeywordModel
    from kws_edge.bench.machine import peak_memory
    from kws_edge.errors import SettingError
    from kws_edge.tuning.record import check_targets
    from kws_export.data.pack import open_packs
    from kws_export.kernels.compiled import tune_process
    from kws_export.stored import check_card
    from kws_export.wake.progress import TerminalProgress
    from kws_export.wake.project import WakeProject
    from kws_export.wake.settings import WakeSettings, WakeWord

    start = start or KeywordModel.load("stream").path
    check_targets(start, out, overwrite=force)
    check_card(out, overwrite=force)
    if (also or phonemes) and len(texts) > 1:
        raise SettingError("--also and --phonemes describe one TEXT; they cannot be used with several")
    words = tuple(WakeWord(text, tuple(dict.fromkeys((text, *also))) if also else (), phonemes) for text in texts)
    settings = WakeSettings(
        words, language=language, voices=tuple(voices.split(",")), takes=takes, near_misses=near_misses,
        epochs=epochs, steps=steps, seed=seed, limit=limit,
    )  # fmt: skip
    tune_process()
    if threads:
        torch.set_num_threads(threads)
    with TerminalProgress() as progress:
        progress.start("negatives", None)
        project = WakeProject(
            settings, work or Path("runs") / f"wake-{out.stem}",
            start=start, negatives=open_packs(negatives), recordings=recordings, recordings_note=recordings_note,
            command=_command(sys.argv[1:]),
        )  # fmt: skip
        found = project.make(out, progress)
        parts = ", ".join(f"{part} {minutes:.1f}" for part, minutes in progress.minutes().items() if minutes >= 0.05)
    rate = next(iter(found.point.negatives.values())).false_accepts_per_hour
    told = "takes: the card says whose" if recordings else "speech of synthesisers: expect to miss people more often"
    click.echo(
        f"found {1 - found.point.miss_rate:.1%} at {rate.value:.2f} false accepts an hour "
        f"(95 %: {rate.low:.2f} to {rate.high:.2f}), on held-out {told}; wrote {out} and {out.with_suffix('.md')}"
    )
    peak = peak_memory()
    click.echo(f"minutes: {parts}" + (f"; memory: {peak:.0f} MB at most" if peak else ""))


def _command(arguments: Sequence[str]) -> str:
    """What was typed, without the folders of this machine, which are in the values of `_PATHS` alone."""
    words = ["kws-export"]
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, value = argument.partition("=")
        if equals and option in _PATHS:
            words.append(f"{option}={_last(value)}")
        else:
            words.append(_last(argument) if before in _PATHS else argument)
    return shlex.join(words)


def _last(path: str) -> str:
    return Path(os.path.abspath(path)).name  # which "." and ".." have too


_PATHS: Final = ("--out", "--negatives", "--recordings", "--start", "--work")
