"""`kws-export sweep`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.model.variants import COMPARED
from kws_export.cli.options import cache_option, device_option, negatives_option, recipe_option
from kws_export.cli.train import epoch_line

if TYPE_CHECKING:
    from kws_export.training.run_folder import EpochResult
    from kws_export.training.sweep import SweepRun


def _names(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    return [name.strip() for name in value.split(",")]


def _seeds(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        return [int(seed) for seed in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r}; expected whole numbers separated by commas, such as 1,2,3") from None


def _ends(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float]:
    try:
        return [float(end) for end in value.split(",")] if value else []
    except ValueError:
        raise click.BadParameter(f"{value!r}; expected numbers separated by commas, such as 0,0.1,1") from None


@click.command()
@recipe_option
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Speech Commands, or recordings in its layout: WORD/CLIP.",
)
@negatives_option
@click.option(
    "--variants",
    callback=_names,
    default=",".join(COMPARED),
    metavar="NAME,...",
    help="Variants to train  [default: all but belief_ce]",
)
@click.option("--seeds", callback=_seeds, default="1,2,3", show_default=True, metavar="N,...", help="Seeds.")
@click.option(
    "--kl-ends", callback=_ends, metavar="WEIGHT,...", help="Final weights of the KL term to compare, a run for each."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder of the runs  [default: runs/RECIPE]"
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Runs at a time on this machine  [default: cores / threads]"
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="CPU threads of each run."
)
@device_option
@click.option("--ray", "address", metavar="ADDRESS", help="Train on a Ray cluster: auto, ray://HOST:10001, or local.")
@cache_option
@click.option("--status", is_flag=True, help="Train nothing; show the progress of every run.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as one JSON object for each run, for scripts.")
def sweep(
    recipe_file: Path,
    data: Path | None,
    negatives: tuple[str, ...],
    variants: list[str],
    seeds: list[int],
    kl_ends: list[float],
    out: Path | None,
    workers: int | None,
    threads: int,
    device: str,
    address: str | None,
    cache: Path,
    status: bool,
    as_json: bool,
) -> None:
    """Train a recipe with every variant and seed.

    Each run goes into OUT/VARIANT-SEED, with a log beside it. Finished runs are skipped, and a run that was stopped
    continues from its last whole epoch, also one that `kws-export train` began. The first seed of every variant is
    trained before the second of any. If a run fails, the others continue.

    \b
    Compare the variants with three seeds each, in runs/nine, and show the progress:
      kws-export sweep --recipe export/recipes/nine.toml --data speech_commands
      kws-export sweep --recipe export/recipes/nine.toml --status
    Two variants, one seed, two runs at a time:
      kws-export sweep --recipe export/recipes/nine.toml --data speech_commands \\
        --variants softmax,plugin_ce --seeds 1 --workers 2
    Other weights of the KL term than the recipe's, in runs/nine/edl_ce-kl0.1-1 and so on:
      kws-export sweep --recipe export/recipes/nine.toml --data speech_commands \\
        --variants edl_ce,plugin_ce_kl --seeds 1 --kl-ends 0,0.1,1
    On a Ray cluster, from one of its machines or from outside:
      kws-export sweep --recipe export/recipes/nine.toml --data /data/speech_commands --ray auto
      kws-export sweep --recipe export/recipes/nine.toml --data /data/speech_commands --ray ray://head:10001

    The machines of a Ray cluster need the data under the same absolute path, and the same versions of Python, Ray and
    PyTorch (the extra `ray`). The code is sent to them, and the files of every epoch are written to OUT here. As many
    runs are started as the cluster has CPUs for, or GPUs with --device cuda. If a machine is lost, its run continues on
    another.

    Exit status: 0 every run is done, or --status was given; 1 a run failed; 2 wrong usage.
    """
    import os

    from kws_edge.cli.progress import bar
    from kws_export.training.recipe import Recipe
    from kws_export.training.sweep import SweepSettings, plan, run_state, train_in_processes

    runs = plan(Recipe.load(recipe_file), variants, seeds, out or Path("runs") / recipe_file.stem, kl_ends)
    if status:
        _print_table(runs, {}, as_json)
        return
    if data is None:
        raise click.UsageError("Missing option '--data'.")
    if not (address or data.is_dir()):
        raise click.BadParameter(f"{data} is not a folder", param_hint="--data")
    if workers and address not in (None, "local"):
        raise click.UsageError(
            "--workers is for one machine; a Ray cluster starts as many runs as it has CPUs or GPUs for"
        )
    settings = SweepSettings(data, cache, device, threads, negatives)
    states = {run: run_state(run) for run in runs}
    left = [run for run in runs if states[run].state in ("not started", "unfinished")]
    with bar("epochs", sum(run.recipe.epochs - states[run].epochs for run in left)) as advance:
        watcher = _Teller(advance)
        for run in runs:
            if states[run].problem:
                watcher.failed(run, states[run].problem)
        try:
            if address:
                from kws_export.training.ray_sweep import train_on_ray

                train_on_ray(left, settings, address, workers, watcher)
            else:
                train_in_processes(left, settings, workers or max(1, (os.cpu_count() or 1) // threads), watcher)
        except KeyboardInterrupt:
            click.echo("stopped; the same command continues from every run's last whole epoch", err=True)
            raise
    _print_table(runs, watcher.failures, as_json)
    if watcher.failures:
        raise click.ClickException(f"{len(watcher.failures)} of {len(runs)} runs failed: {', '.join(watcher.failures)}")


class _Teller:
    """Writes each run's log, and says on standard error when a run starts and ends."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self.advance = advance
        self.failures: dict[str, str] = {}

    def started(self, run: "SweepRun", epoch: int, where: str) -> None:
        after = f" after {epoch} of {run.recipe.epochs} epochs" if epoch else ""
        self._both(run, f"training{after}, {where}")

    def trained(self, run: "SweepRun", result: "EpochResult") -> None:
        self._log(run, epoch_line(result, run.recipe.epochs))
        self.advance()

    def finished(self, run: "SweepRun") -> None:
        self._both(run, "done")

    def failed(self, run: "SweepRun", reason: str) -> None:
        self.failures[run.name] = reason
        click.echo(f"{run.name}: failed: {reason}", err=True)  # the log has it, in full, from where it happened

    def _both(self, run: "SweepRun", text: str) -> None:
        click.echo(f"{run.name}: {text}", err=True)
        self._log(run, text)

    def _log(self, run: "SweepRun", text: str) -> None:
        with run.log.open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")


def _print_table(runs: "Sequence[SweepRun]", failures: dict[str, str], as_json: bool) -> None:
    from kws_export.training.sweep import run_state

    width = max(len(run.name) for run in runs)
    if not as_json:
        click.echo(f"{'RUN':{width}}  {'STATE':11}  {'EPOCHS':>9}  BEST VALIDATION ACCURACY")
    done = 0
    for run in runs:
        found = run_state(run)
        done += found.state == "done"
        problem = failures.get(run.name, found.problem)
        name = "failed" if run.name in failures else found.state
        if as_json:
            row = {
                "run": run.name, "variant": run.recipe.variant, "seed": run.recipe.seed, "folder": str(run.folder),
                "state": name, "epochs_done": found.epochs, "epochs": run.recipe.epochs,
                "best_validation_accuracy": found.best, "problem": problem or None,
            }  # fmt: skip
            click.echo(json.dumps(row))
        else:
            best = "-" if found.best is None else f"{found.best:.4f}"
            epochs = f"{found.epochs}/{run.recipe.epochs}"
            click.echo(f"{run.name:{width}}  {name:11}  {epochs:>9}  {best}{f'  ({problem})' if problem else ''}")
    if not as_json:
        click.echo(f"{done} of {len(runs)} runs done")
