"""`kws-edge bench`: latency, throughput and memory of models on this machine, to be compared."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.options import INTEGERS, WORDS, Number, hop_option
from kws_edge.errors import SettingError
from kws_edge.files import write_named
from kws_edge.model.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from kws_edge.bench.report import BenchReport, Change

_WIDTH = 160
"""Of a table that goes to a file or pipe; on a terminal it is the terminal's."""


@click.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME|PATH|all",
    help=f"A model that `kws-edge models` lists, an .onnx file, or all; repeatable  [default: {DEFAULT_MODEL}]",
)
@click.option("--task", "tasks", type=WORDS, metavar="TASK,...", help="clip, stream  [default: clip,stream]")
@click.option(
    "--provider",
    "providers",
    type=WORDS,
    metavar="NAME,...",
    help="Execution providers, such as cpu,cuda  [default: all that run here]",
)
@click.option(
    "--threads", type=INTEGERS, default="1", show_default=True, metavar="N,...", help="Threads of one inference."
)
@click.option(
    "--batch", type=INTEGERS, default="1", show_default=True, metavar="N,...", help="Clips per inference, up to 16."
)
@hop_option
@click.option(
    "--seconds",
    type=Number(),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Total measuring time, shared by all rows.",
)
@click.option("--fallback", is_flag=True, help="Where a --provider does not run, measure the CPU and warn.")
@click.option(
    "--compare", type=click.Path(path_type=Path), metavar="OLD.json", help="Print the ratios to an earlier --out file."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.json", help="Write the figures, for --compare.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE.md", help="Write the tables as Markdown.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Plot where the time goes.")
@click.option("--count", "counting", is_flag=True, help="Count operations instead of measuring time; see above.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables, for scripts.")
@click.pass_context
def bench(
    ctx: click.Context,
    models: tuple[str, ...],
    tasks: list[str] | None,
    providers: list[str] | None,
    threads: list[int],
    batch: list[int],
    hop: float,
    seconds: float,
    fallback: bool,
    compare: Path | None,
    out: Path | None,
    markdown: Path | None,
    plot: Path | None,
    counting: bool,
    as_json: bool,
) -> None:
    """Measure latency, throughput and memory of models here.

    There is one row for each combination of model, task, execution provider, number of threads and batch size. The task
    clip decodes and classifies files of one second; stream feeds a live stream, with the network run at every hop. Each
    row runs in a process of its own, without counting warm-up, and the rows take turns, so that load on the machine
    affects all of them alike.

    \b
    kws-edge bench
    kws-edge bench --model softmax --threads 1,2,4 --batch 1,8 --task clip
    kws-edge bench --provider cuda --out before.json
    kws-edge bench --provider cuda --compare before.json --markdown bench.md --plot bench.svg

    A provider that you name must run, or the command fails. Without --provider, those that do not run are listed with
    the reason. Results are always listed under the provider that really ran.

    RTF, the real-time factor, is processing time divided by the duration of the audio; core is CPU time of all threads
    divided by it. The interval of a ratio covers the variation between rounds within the two runs. To see how much
    separate runs differ, repeat the old one.

    --count counts instead of measuring time: the multiply-adds, bytes and operator calls of a window, a hop and a clip,
    and, where Linux permits it, instructions and cycles. From these it estimates the time on Raspberry Pis.

    Exit status: 0 success; 1 some row could not be measured; 2 wrong usage, or a model, provider or file that cannot be
    used.
    """
    from kws_edge.bench.plot import plot as draw
    from kws_edge.bench.report import BenchReport
    from kws_edge.bench.runner import Plan
    from kws_edge.bench.runner import bench as measure
    from kws_edge.bench.tables import markdown as as_markdown
    from kws_edge.cli.counting import show_counts
    from kws_edge.model.shipped import shipped_models
    from kws_edge.svg import check_name

    names = tuple(shipped_models()) if "all" in models else models or (DEFAULT_MODEL,)
    if counting:
        others = ctx.params.keys() - {"models", "hop", "counting", "as_json"}
        if any(ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT for name in others):
            raise click.UsageError("--count measures no time; with it, use only --model, --hop and --json")
        show_counts(names, hop, as_json=as_json)
        return
    if plot:
        check_name(plot)
    _check_folders(out, markdown)
    old = BenchReport.read(compare) if compare else None
    plan = Plan(
        models=names,
        **{} if tasks is None else {"tasks": tasks},
        providers=providers,
        threads=threads,
        batches=batch,
        seconds=seconds,
        hop=hop,
        fallback=fallback,
    )
    with _progress() as progress:
        report = measure(plan, warn=lambda message: click.echo(f"Warning: {message}", err=True), progress=progress)
    changes = report.against(old) if old else []
    values = report.to_dict()
    if old:
        values["compare"] = {"file": str(compare), "changes": [change.to_dict() for change in changes]}
    if as_json:
        click.echo(json.dumps(values, allow_nan=False))
    else:
        _show(report)
        if old:
            _show_changes(report, old, changes)
    if out:  # after what is shown, so that a full disk costs only the file
        write_named(out, json.dumps(values, allow_nan=False, indent=1) + "\n")
    if markdown:
        write_named(markdown, as_markdown(report))
    if plot:
        draw(report.rows, plot)
    if any(providers or refusal.case.provider == "cpu" for refusal in report.refused):
        sys.exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, moved by the fraction that is done."""
    from kws_edge.cli.progress import bar

    steps, done = 100, 0
    with bar("measuring", steps) as step:

        def advance(fraction: float) -> None:
            nonlocal done
            while done < round(fraction * steps):
                step()
                done += 1

        yield advance


def _show(report: "BenchReport") -> None:
    from kws_edge.bench.report import versions_in_words
    from kws_edge.bench.tables import NAMES, machine_in_words, tables, verdicts

    click.echo(f"{machine_in_words(report.machine)}\n{versions_in_words(report.rows)}")
    for table in tables(report.rows):
        print_table(*table, names=NAMES)
    for refusal in report.refused:
        click.echo(f"No row for {refusal}")
    for verdict in verdicts(report.rows):
        click.echo(verdict)
    busy = report.busy
    if busy is not None:
        click.echo(f"The machine was busy (load {busy:.1f}): times include waiting for other programs; core does not.")


def _show_changes(report: "BenchReport", old: "BenchReport", changes: Sequence["Change"]) -> None:
    from kws_edge.bench.report import case_in_words

    for what in report.differences(old):
        click.echo(f"Differs: {what}")
    cells = [
        [
            case_in_words(change.case),
            f"{change.old_ms:.2f}",
            f"{change.new_ms:.2f}",
            f"{change.time.value:.3f}",
            f"{change.time.low:.3f} to {change.time.high:.3f}",
            f"{change.scaled.value:.3f}",
            f"{change.scaled.low:.3f} to {change.scaled.high:.3f}",
            "-" if change.memory is None else f"{change.memory:.2f}",
            change.verdict + ("" if change.same_model else ", another model file"),
        ]
        for change in changes
    ]
    if cells:
        heading = ["row", "old", "new", "ratio", "95 %", "to yardstick", "95 %", "memory", "verdict"]
        print_table(f"Against {old.taken}: p50 in ms, ratios new to old", heading, cells, names=1)
    else:
        click.echo(f"No row to compare: the run of {old.taken} has none of these cases")


def print_table(title: str, heading: Sequence[str], cells: Sequence[Sequence[str]], *, names: int) -> None:
    """Print a table whose first columns are names, and the others figures."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(heading):
        table.add_column(column, justify="left" if i < min(names, 3) else "right", no_wrap=i >= names)
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _check_folders(*files: Path | None) -> None:
    for path in filter(None, files):
        if not path.absolute().parent.is_dir():
            raise SettingError(f"cannot write {path}; expected a folder that is there")
