"""`kws-export`: the workstation's command line."""

import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.errors import KwsEdgeError

if TYPE_CHECKING:
    from kws_edge.metadata import Score

ProgressCallback = Callable[[int, int, float], None]
CACHE = Path("runs/cache")
existing_folder = click.Path(exists=True, file_okay=False, path_type=Path)
existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)


class _OneLineErrors(click.Group):
    """Errors of the package and of the system become one line and exit status 1; Ctrl-C is status 130."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (KwsEdgeError, OSError) as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Train evidential keyword spotters and export them as self-describing ONNX files."""


@main.command()
@click.option("--recipe", "recipe_file", type=existing_file, required=True, help="TOML file; see export/recipes.")
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--negatives", multiple=True, help="Folder, file or glob without words, for a recipe with [negatives].")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder  [default: runs/NAME-SEED]")
@click.option("--seed", type=int, help="Instead of the recipe's.")
@click.option("--epochs", type=int, help="Instead of the recipe's.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Threads of the CPU kernels  [default: all cores]")
@click.option("--workers", type=click.IntRange(0), default=0, show_default=True, help="Processes that make batches.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def train(
    recipe_file: Path,
    data: Path,
    negatives: tuple[str, ...],
    out: Path | None,
    seed: int | None,
    epochs: int | None,
    device: str,
    threads: int | None,
    workers: int,
    cache: Path,
) -> None:
    """Train one recipe. After Ctrl-C or a kill, the same command goes on from the last whole epoch.

    \b
    A run of 40 epochs, into runs/softmax-1:
      kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands
    The same in the background, a line an epoch in the log:
      nohup kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands > train.log &
    Another seed, for the spread over seeds:
      kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands --seed 2
    Two processes that share each batch:
      torchrun --nproc-per-node 2 -m kws_export train --recipe export/recipes/softmax-base.toml \\
        --data speech_commands --threads 1
    """
    from dataclasses import replace

    import torch

    from kws_export.kernels import tune_process
    from kws_export.recipe import Recipe
    from kws_export.trainer import EpochResult, Trainer, joined_world, pick_device

    recipe = Recipe.load(recipe_file)
    changes = {key: value for key, value in {"seed": seed, "epochs": epochs}.items() if value is not None}
    recipe = replace(recipe, **changes)  # type: ignore[arg-type]
    tune_process()
    if threads:
        torch.set_num_threads(threads)
    chosen = pick_device(device)
    with joined_world(chosen) as world:
        folder = out or Path("runs") / f"{recipe.name}-{recipe.seed}"
        trainer = Trainer(
            recipe, data, folder, cache=cache, device=chosen, world=world, workers=workers, negatives=negatives
        )

        def report(result: EpochResult) -> None:
            click.echo(
                f"epoch {result.epoch:3d}/{recipe.epochs}  loss {result.train_loss:.4f}  "
                f"accuracy {result.train_accuracy:.4f}  validation {result.validation_accuracy:.4f}  "
                f"{result.samples_per_second:.0f} clips/s"
            )

        if trainer.epoch and world.is_main:
            click.echo(f"{folder} has {trainer.epoch} of {recipe.epochs} epochs; going on from there")
        try:
            with _epoch_bar(world.is_main) as progress:
                trainer.run(progress, report)
        except KeyboardInterrupt:
            if world.is_main:
                click.echo(f"stopped after {trainer.epoch} epochs; the same command goes on from there", err=True)
            raise
        if world.is_main:
            click.echo(f"best validation accuracy {trainer.best:.4f}: {folder / 'best.pt'}")


@main.command()
@click.argument("run", type=existing_folder)
@click.option("--data", type=existing_folder, required=True, help="Folder of Speech Commands, in its public layout.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write  [default: models/NAME.onnx]")
@click.option("--checkpoint", default="best.pt", show_default=True, help="Which of the run's checkpoints.")
@click.option("--score", type=click.Choice(["entropy", "vacuity"]), default="entropy", show_default=True)
@click.option("--with-front-end", is_flag=True, help="Also NAME.audio.onnx, which takes samples instead of MFCC.")
@click.option("--negatives", default="", help="For the card: what the recordings without words were.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, show_default=True, help="Decoded clips.")
def export(
    run: Path,
    data: Path,
    out: Path | None,
    checkpoint: str,
    score: "Score",
    with_front_end: bool,
    negatives: str,
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
    from kws_export.package import package
    from kws_export.trainer import load_checkpoint

    source = run / checkpoint
    name = load_checkpoint(source)["recipe"]["name"]
    out = out or Path("models") / f"{name}.onnx"
    # For the card, so without the folders of this machine.
    command = ["kws-export", "export", f"runs/{run.resolve().name}", "--data", "speech_commands"]
    command += ["--out", f"models/{out.name}", "--checkpoint", checkpoint, "--score", score]
    command += ["--with-front-end"] if with_front_end else []
    command += ["--negatives", negatives] if negatives else []
    package(
        source, data, out, cache=cache, score=score, with_front_end=with_front_end,
        negatives=negatives, command=shlex.join(command), report=click.echo,
    )  # fmt: skip
    click.echo(f"wrote {out} and {out.with_suffix('.md')}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--version", type=click.Choice(["0.01", "0.02"]), default="0.02", show_default=True)
def download(folder: Path, version: str) -> None:
    """Fetch Speech Commands into FOLDER: resumable, checksummed.

    \b
    kws-export download speech_commands
    """
    from kws_export.download import download as fetch

    click.echo(f"Speech Commands {version} is in {fetch(folder, version)}")


@main.command()
@click.argument("file", type=existing_file)
def inspect(file: Path) -> None:
    """Show what a model FILE holds: operators, weights, opset, and its metadata as JSON.

    \b
    kws-export inspect models/softmax.onnx
    """
    import json
    from collections import Counter

    from kws_export.onnx_export import load_model

    model, metadata = load_model(file)
    operators = Counter(node.op_type for node in model.graph.node)
    weights = sum(math.prod(w.dims) for w in model.graph.initializer)
    click.echo(f"{file}: IR version {model.ir_version}, opset {model.opset_import[0].version}, {weights:,} weights")
    click.echo("operators: " + ", ".join(f"{name} x{n}" for name, n in operators.most_common()))
    click.echo(json.dumps(json.loads(metadata.to_json()), indent=2, ensure_ascii=False))


@contextmanager
def _epoch_bar(shown: bool) -> Iterator[ProgressCallback]:
    """On a terminal, a bar of an epoch's steps, gone at the epoch's end to make room for its line; else nothing."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda step, steps, loss: None
        return
    bar: Progress | None = None

    def progress(step: int, steps: int, loss: float) -> None:
        nonlocal bar
        if bar is None:
            bar = Progress(console=console, transient=True)
            bar.add_task("", total=steps)
            bar.start()
        bar.update(bar.task_ids[0], completed=step, description=f"step {step}/{steps}, loss {loss:.3f}")
        if step == steps:
            bar.stop()
            bar = None

    try:
        yield progress
    finally:
        if bar:
            bar.stop()
