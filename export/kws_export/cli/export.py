"""`kws-export export`."""

import shlex
from pathlib import Path

import click

from kws_edge.model.score import SCORES, Score
from kws_export.cli.options import CACHE, existing_file, existing_folder


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="RUN|FILE.pt|MODEL.onnx")
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write  [default: models/NAME.onnx, or MODEL]")
@click.option("--checkpoint", default="best.pt", show_default=True, help="Which of the run's checkpoints.")
@click.option("--score", type=click.Choice(SCORES), help="[default: MODEL's own, or entropy]")
@click.option(
    "--with-front-end",
    is_flag=True,
    help="Also NAME.audio.onnx and, without padding, NAME.audio.step.onnx, which take samples instead of MFCC.",
)
@click.option("--negatives", default="", help="For the card: which recordings without words it was trained on.")
@click.option("--about", "about_file", type=existing_file, help="TOML: data, licence, attribution; see below.")
@click.option("--force", is_flag=True, help="Write over a file of another recipe.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def export(
    source: Path,
    data: Path,
    out: Path | None,
    checkpoint: str,
    score: Score | None,
    with_front_end: bool,
    negatives: str,
    about_file: Path | None,
    force: bool,
    cache: Path,
) -> None:
    """Turn a RUN folder into a calibrated, self-describing ONNX file with its model card.

    It compares torch, ONNX Runtime and numpy on real clips, chooses the thresholds on the validation split and
    measures them on the test split. FILE.pt is a single checkpoint, such as `kws-export average` writes. Given an
    exported MODEL.onnx, it writes the file and its card again, from its own weights.

    A threshold is chosen so that the validation clips show its target with 95 % confidence; where they are too few,
    the target is marked as not shown.

    The card names the recordings and the licence of the weights as the recipe does in [about], or else about.toml in
    the data folder, with the texts data, licence and attribution; --about FILE.toml gives them instead. What is
    missing is "not stated".

    \b
    models/softmax.onnx and models/softmax.md:
      kws-export export runs/softmax-1 --data speech_commands
    With a second file for C++, Java or a browser, which takes samples:
      kws-export export runs/softmax-1 --data speech_commands --out softmax-b.onnx --with-front-end
    The same file again, with this version's graph and thresholds:
      kws-export export models/softmax.onnx --data speech_commands --with-front-end
    """
    from kws_export.release.package import ExportSource, package
    from kws_export.training.about import About

    # Paths for the card, so without the folders of this machine.
    if source.suffix != ".onnx":
        opened = ExportSource.open(source / checkpoint if source.is_dir() else source)
        out = out or Path("models") / f"{opened.checkpoint.recipe.name}.onnx"
        given = [_below(source, "runs"), "--data", data.resolve().name, "--out", f"models/{out.name}"]
        given += ["--checkpoint", checkpoint] if source.is_dir() else []
    else:
        opened, out = ExportSource.open(source), out or source
        given = [_below(source, "models", "research"), "--data", data.resolve().name]
        given += ["--out", _below(out, "models", "research")] if out != source else []
    given += ["--score", score] if score else []
    given += ["--with-front-end"] if with_front_end else []
    given += ["--negatives", negatives] if negatives else []
    given += ["--about", f"export/about/{about_file.name}"] if about_file else []
    package(
        opened, data, out, cache=cache, score=score, with_front_end=with_front_end, negatives=negatives,
        about=About.load(about_file) if about_file else None, command=shlex.join(["kws-export", "export", *given]),
        overwrite=force, report=click.echo,
    )  # fmt: skip
    click.echo(f"wrote {out} and {out.with_suffix('.md')}")


def _below(path: Path, *folders: str) -> str:
    """A path from one of these folders on, the first of them where it lies in none."""
    parts = path.resolve().parts
    starts = [parts.index(folder) for folder in folders if folder in parts]
    return "/".join(parts[min(starts) :] if starts else (folders[0], path.resolve().name))
