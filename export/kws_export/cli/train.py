"""`kws-export train`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_export.cli.options import (
    cache_option,
    data_option,
    device_option,
    negatives_option,
    recipe_option,
    threads_option,
)

if TYPE_CHECKING:
    from kws_export.training.run_folder import EpochResult

ProgressCallback = Callable[[int, int, float], None]


@click.command()
@recipe_option
@data_option
@negatives_option
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder of the run  [default: runs/NAME-SEED]"
)
@click.option("--seed", type=int, metavar="N", help="Seed, instead of the recipe's.")
@click.option("--epochs", type=int, metavar="N", help="Number of epochs, instead of the recipe's.")
@device_option
@threads_option
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Processes that prepare batches; 0 for the training process itself.",
)
@cache_option
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
    """Train a recipe.

    If it is stopped, the same command continues from the last whole epoch.

    \b
    Train for 40 epochs, in runs/softmax-1:
      kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands
    In the background, with one line for each epoch in the log:
      nohup kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands > train.log &
    With another seed, to see the spread between seeds:
      kws-export train --recipe export/recipes/softmax-base.toml --data speech_commands --seed 2
    In two processes that share each batch:
      torchrun --nproc-per-node 2 -m kws_export train --recipe export/recipes/softmax-base.toml \\
        --data speech_commands --threads 1
    """
    from dataclasses import replace

    import torch

    from kws_export.kernels.compiled import tune_process
    from kws_export.training.distribution import joined_world, pick_device
    from kws_export.training.prepared import prepare
    from kws_export.training.recipe import Recipe
    from kws_export.training.trainer import Trainer

    recipe = Recipe.load(recipe_file)
    changes = {key: value for key, value in {"seed": seed, "epochs": epochs}.items() if value is not None}
    recipe = replace(recipe, **changes)  # type: ignore[arg-type]
    tune_process()
    if threads:
        torch.set_num_threads(threads)
    chosen = pick_device(device)
    with joined_world(chosen) as world:
        folder = out or Path("runs") / f"{recipe.name}-{recipe.seed}"
        prepared = prepare(recipe, data, cache, negatives, folder=folder)
        trainer = Trainer(recipe, prepared, folder, device=chosen, world=world, workers=workers)

        def report(result: "EpochResult") -> None:
            click.echo(epoch_line(result, recipe.epochs))

        if trainer.epoch and world.is_main:
            click.echo(f"{folder} has {trainer.epoch} of {recipe.epochs} epochs; continuing from there")
        try:
            with _epoch_bar(world.is_main) as progress:
                trainer.run(progress, report)
        except KeyboardInterrupt:
            if world.is_main:
                click.echo(f"stopped after {trainer.epoch} epochs; the same command continues from there", err=True)
            raise
        if world.is_main:
            click.echo(f"best validation accuracy {trainer.best:.4f}: {folder / 'best.pt'}")


def epoch_line(result: "EpochResult", epochs: int) -> str:
    """What a log says of one epoch, of `epochs`."""
    return (
        f"epoch {result.epoch:3d}/{epochs}  loss {result.train_loss:.4f}  accuracy {result.train_accuracy:.4f}  "
        f"validation {result.validation_accuracy:.4f}  {result.samples_per_second:.0f} clips/s"
    )


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
