"""`kws-export wake`."""

import shlex
import sys
from pathlib import Path

import click

from kws_export.cli.options import existing_file, existing_folder


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT…")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The model to write, NAME.onnx.")
@click.option("--recordings", type=existing_folder, help="Takes by people: FOLDER/WORD/*, or FOLDER/* for one word.")
@click.option("--recordings-note", default="", metavar="TEXT", help="For the card: whose they are, and their licence.")
@click.option("--voices", default="auto", show_default=True, help="Or none, or some of kokoro,festival,flite,espeak.")
@click.option("--negatives", multiple=True, metavar="PATH", help="Pack, folder or file without the word; repeatable.")
@click.option("--also", multiple=True, metavar="TEXT", help="Another spelling for the voices, such as 'hay lamp'.")
@click.option("--phonemes", default="", help="How the word is pronounced, in espeak-ng's notation.")
@click.option("--language", default="en-us", show_default=True, help="As espeak-ng calls it: en-us, en-gb, de, nl.")
@click.option("--takes", type=click.IntRange(1), default=160, show_default=True, help="Of each word, by kokoro.")
@click.option("--near-misses", type=click.IntRange(0), default=50, show_default=True, help="Phrases like each word.")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=120, show_default=True, help="Of 128 windows, in an epoch.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--false-accepts-per-hour", "limit", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True
)
@click.option("--start", type=existing_file, help="Model to begin with  [default: stream, as it ships]")
@click.option("--work", type=click.Path(path_type=Path), help="Folder of takes and runs  [default: runs/wake-NAME]")
@click.option("--force", is_flag=True, help="Write over the model where it exists.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the CPU kernels  [default: all cores]")
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
    """Make a model that listens for a word or phrase of your own, with or without recordings of it.

    Voices say every TEXT hundreds of times, and words that sound like it; recordings of people count more than all of
    these. The network that ships is trained further on that, in simulated rooms, over speech and sounds of the
    negatives. The best epoch and the threshold are chosen on recordings that were held out. Beside NAME.onnx come its
    card, NAME.md, its trade-off curve, NAME.svg, and its form for streams.

    After Ctrl-C or a kill, the same command continues from where it was. The same seed gives the same model. A word
    that cannot be told from other speech within --false-accepts-per-hour fails the command, with the trade-off that
    there is.

    As it is, the command takes about half an hour of one core of a server: 4 minutes for the voices, 20 for the
    training, 5 for the threshold, and 2.5 GB of memory; --epochs 8 --steps 100 takes a third of the training. What it
    took is told at its end. Half of the windows with the word are of people's recordings, where there are some.

    \b
    From nothing but a text, negatives from a pack (`kws-export pack`):
      kws-export wake "hey lamp" --negatives negatives.npz --out lamp.onnx
    With recordings by people, WORD/SPEAKER_nohash_N.wav or any names:
      kws-export wake computer --recordings takes --negatives negatives.npz --out computer.onnx
    From recordings alone, of one speaker too:
      kws-export wake "open sesame" --voices none --recordings me --negatives negatives.npz --out open.onnx
    Two words in one model, in German, and a name as it is pronounced:
      kws-export wake "Hallo Küche" Stopp --language de --negatives negatives.npz --out kueche.onnx
      kws-export wake Siobhan --phonemes "SIv'O:n" --negatives negatives.npz --out siobhan.onnx
    Then:
      kws-edge listen --model lamp.onnx
    """
    import torch

    from kws_edge import KeywordModel
    from kws_edge.bench.machine import peak_memory
    from kws_edge.errors import SettingError
    from kws_export.data.pack import open_packs
    from kws_export.kernels.compiled import tune_process
    from kws_export.wake.progress import TerminalProgress
    from kws_export.wake.project import WakeProject
    from kws_export.wake.settings import WakeSettings, WakeWord

    if out.suffix != ".onnx":
        raise SettingError(f"cannot write {out}; expected a name that ends in .onnx")
    if out.exists() and not force:
        raise SettingError(f"{out} exists; expected another --out, or --force to write over it")
    if (also or phonemes) and len(texts) > 1:
        raise SettingError("--also and --phonemes go with one TEXT; expected no other")
    words = tuple(WakeWord(text, (text, *also) if also else (), phonemes) for text in texts)
    settings = WakeSettings(
        words, language=language, voices=tuple(voices.split(",")), takes=takes, near_misses=near_misses,
        epochs=epochs, steps=steps, seed=seed, limit=limit,
    )  # fmt: skip
    if not negatives:
        raise SettingError(
            "no --negatives; expected hours of speech without the word: the pack of the release, or one of "
            "`kws-export pack`"
        )
    tune_process()
    if threads:
        torch.set_num_threads(threads)
    with TerminalProgress() as progress:
        progress.start("negatives", None)
        project = WakeProject(
            settings, work or Path("runs") / f"wake-{out.stem}",
            start=start or KeywordModel.load("stream").path, negatives=open_packs(negatives), recordings=recordings,
            recordings_note=recordings_note, command=_command(),
        )  # fmt: skip
        found = project.make(out, progress)
        parts = ", ".join(f"{part} {minutes:.1f}" for part, minutes in progress.minutes().items() if minutes >= 0.05)
    rate = next(iter(found.point.negatives.values())).false_accepts_per_hour
    click.echo(
        f"found {1 - found.point.miss_rate:.1%} at {rate.value:.2f} false accepts an hour "
        f"(95 %: {rate.low:.2f} to {rate.high:.2f}), on what was held out; wrote {out} and {out.with_suffix('.md')}"
    )
    peak = peak_memory()
    click.echo(f"minutes: {parts}" + (f"; memory: {peak:.0f} MB at most" if peak else ""))


def _command() -> str:
    """What was typed, without the folders of this machine."""
    words = [Path(arg).name if "/" in arg else arg for arg in sys.argv[1:]]
    return shlex.join(["kws-export", *words])
