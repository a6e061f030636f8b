"""`kws-export export`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_export.cli.options import CACHE, existing_folder

if TYPE_CHECKING:
    from kws_edge.model.metadata import Score


@click.command()
@click.argument("run", type=existing_folder)
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write  [default: models/NAME.onnx]")
@click.option("--checkpoint", default="best.pt", show_default=True, help="Which of the run's checkpoints.")
@click.option("--score", type=click.Choice(["entropy", "vacuity"]), default="entropy", show_default=True)
@click.option(
    "--with-front-end",
    is_flag=True,
    help="Also NAME.audio.onnx and, without padding, NAME.audio.step.onnx, which take samples instead of MFCC.",
)
@click.option("--negatives", default="", help="For the card: what the recordings without words were.")
@click.option("--force", is_flag=True, help="Write over a file of another recipe.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def export(
    run: Path,
    data: Path,
    out: Path | None,
    checkpoint: str,
    score: "Score",
    with_front_end: bool,
    negatives: str,
    force: bool,
    cache: Path,
) -> None:
    """Turn a RUN folder into a calibrated, self-describing ONNX file with its model card.

    It compares torch, ONNX Runtime and numpy on real clips, chooses the thresholds on the validation split and
    measures them on the test split.

    \b
    models/softmax.onnx and models/softmax.md:
      kws-export export runs/softmax-1 --data speech_commands
    With a second file for C++, Java or a browser, which takes samples:
      kws-export export runs/softmax-1 --data speech_commands --out softmax-b.onnx --with-front-end
    """
    from kws_export.release.package import package
    from kws_export.training.checkpoint import load_checkpoint

    source = run / checkpoint
    name = load_checkpoint(source)["recipe"]["name"]
    out = out or Path("models") / f"{name}.onnx"
    # For the card, so without the folders of this machine.
    folders = run.resolve().parts
    below = folders[folders.index("runs") :] if "runs" in folders else ("runs", folders[-1])
    command = ["kws-export", "export", "/".join(below), "--data", "speech_commands"]
    command += ["--out", f"models/{out.name}", "--checkpoint", checkpoint, "--score", score]
    command += ["--with-front-end"] if with_front_end else []
    command += ["--negatives", negatives] if negatives else []
    package(
        source, data, out, cache=cache, score=score, with_front_end=with_front_end,
        negatives=negatives, command=shlex.join(command), overwrite=force, report=click.echo,
    )  # fmt: skip
    click.echo(f"wrote {out} and {out.with_suffix('.md')}")
