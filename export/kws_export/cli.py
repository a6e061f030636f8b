"""`kws-export`: the workstation's command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kws_edge.errors import KwsEdgeError

ProgressCallback = Callable[[int, int, float], None]
CACHE = Path("runs/cache")
existing_folder = click.Path(exists=True, file_okay=False, path_type=Path)
existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)


class _OneLineErrors(click.Group):
    """Deliberate errors become one line and exit status 1, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KwsEdgeError as error:
            raise click.ClickException(str(error)) from None


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
    """Train one recipe; run the same command again to go on after a kill.

    \b
    kws-export train --recipe export/recipes/softmax.toml --data speech_commands
    torchrun --nproc-per-node 2 -m kws_export train --recipe … --data … --threads 1
    """
    from dataclasses import replace

    import torch

    from kws_export.recipe import Recipe
    from kws_export.trainer import EpochResult, Trainer, joined_world, pick_device

    recipe = Recipe.load(recipe_file)
    changes = {key: value for key, value in {"seed": seed, "epochs": epochs}.items() if value is not None}
    recipe = replace(recipe, **changes)  # type: ignore[arg-type]
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

        with _epoch_bar(world.is_main) as progress:
            trainer.run(progress, report)
        if world.is_main:
            click.echo(f"best validation accuracy {trainer.best:.4f}: {folder / 'best.pt'}")


@contextmanager
def _epoch_bar(shown: bool) -> Iterator[ProgressCallback]:
    """A bar of the epoch's steps on a terminal; nothing in a log file."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda step, steps, loss: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda step, steps, loss: bar.update(
            task, completed=step, total=steps, description=f"step {step}/{steps}, loss {loss:.3f}"
        )
