"""`kws-export export`."""

import shlex
from pathlib import Path

import click

from kws_edge.model.score import SCORES, Score
from kws_export.cli.options import cache_option, data_option, existing_file


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="RUN|FILE.pt|MODEL.onnx")
@data_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE.onnx",
    help="File to write  [default: models/NAME.onnx; MODEL.onnx itself]",
)
@click.option("--checkpoint", default="best.pt", show_default=True, metavar="NAME", help="Which checkpoint of the RUN.")
@click.option(
    "--score",
    type=click.Choice(SCORES),
    help="Uncertainty that decides whether to abstain  [default: that of MODEL.onnx, or entropy]",
)
@click.option(
    "--with-front-end",
    is_flag=True,
    help="Also write NAME.audio.onnx, which takes samples instead of MFCC, and NAME.audio.step.onnx, the same for "
    "streams, for a network without padding.",
)
@click.option(
    "--negatives", default="", metavar="TEXT", help="For the card: the recordings without words used in training."
)
@click.option(
    "--about",
    "about_file",
    type=existing_file,
    metavar="FILE.toml",
    help="For the card: data, licence and attribution; see above.",
)
@click.option("--force", is_flag=True, help="Overwrite a model of another recipe.")
@cache_option
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
    """Turn a training RUN into a model file with a model card.

    Thresholds are chosen on the validation split and measured on the test split, and torch, ONNX Runtime and numpy are
    checked to agree on real clips. Instead of a RUN, the source can be a checkpoint, FILE.pt, such as `kws-export
    average` writes, or an exported MODEL.onnx, whose file and card are written anew from its own weights.

    The threshold for a target is chosen so that the validation clips show, with 95 % confidence, that the target is
    met. Where there are too few clips for that, the target is marked as not shown.

    What the card says of the recordings and the licence comes from [about] in the recipe, or else from about.toml in
    the data folder, with the keys data, licence and attribution. --about overrides both. The rest is "not stated".

    \b
    Write models/softmax.onnx and models/softmax.md:
      kws-export export runs/softmax-1 --data speech_commands
    Also write forms for C++, Java or browsers, which take samples:
      kws-export export runs/softmax-1 --data speech_commands --out softmax-b.onnx --with-front-end
    Renew an exported file, with this version's graph and thresholds:
      kws-export export models/softmax.onnx --data speech_commands --with-front-end
    """
    from kws_export.release.package import ExportSource, package
    from kws_export.training.about import About

    # The card shows the command, without the folders of this machine.
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


def _below(path: Path, *folders: str) -> str:
    """A path from one of these folders on, the first of them where it lies in none."""
    parts = path.resolve().parts
    starts = [parts.index(folder) for folder in folders if folder in parts]
    return "/".join(parts[min(starts) :] if starts else (folders[0], path.resolve().name))
