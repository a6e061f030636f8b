"""`kws-edge bench`: what the models cost on this machine, in figures that can be compared."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kws_edge.errors import SettingError
from kws_edge.files import replace_file

if TYPE_CHECKING:
    from kws_edge.bench.report import BenchReport, Change

_WIDTH = 160
"""Of a table that goes to a file or pipe; on a terminal it is the terminal's."""


class _List(click.ParamType[list[Any]]):
    """Values with commas between them."""

    def __init__(self, kind: type) -> None:
        """Of numbers or of texts."""
        self.name, self._kind = "list", kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """A text to its values."""
        if isinstance(value, list):
            return value
        try:
            return [self._kind(part.strip()) for part in value.split(",") if part.strip()]
        except ValueError:
            self.fail(f"{value!r}; expected whole numbers with commas between them", param, ctx)


@click.command()
@click.option(
    "--model", "models", multiple=True, metavar="NAME|PATH|all", help="Repeatable.  [default: the default model]"
)
@click.option("--task", "tasks", type=_List(str), metavar="LIST", help="clip, stream.  [default: both]")
@click.option(
    "--provider", "providers", type=_List(str), metavar="LIST", help="As cpu,cuda.  [default: all that there are]"
)
@click.option("--threads", type=_List(int), default="1", show_default=True, metavar="LIST", help="Of one run.")
@click.option("--batch", type=_List(int), default="1", show_default=True, metavar="LIST", help="Clips at once, to 16.")
@click.option("--hop", default=0.1, show_default=True, metavar="SECONDS", help="Of a stream, 0.01 to 1.")
@click.option("--seconds", default=20.0, show_default=True, help="Of timing, shared by all rows.")
@click.option("--fallback", is_flag=True, help="Measure the CPU, with a warning, where a --provider does not run.")
@click.option(
    "--compare", type=click.Path(path_type=Path), metavar="OLD.json", help="Print ratios to an older --output."
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE.json", help="Write the figures, for --compare."
)
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE.md", help="Write the tables.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw where the time goes.")
@click.option("--count", "counting", is_flag=True, help="Count the work instead of timing it; read above.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object instead of tables.")
def bench(
    models: tuple[str, ...],
    tasks: list[str] | None,
    providers: list[str] | None,
    threads: list[int],
    batch: list[int],
    hop: float,
    seconds: float,
    fallback: bool,
    compare: Path | None,
    output: Path | None,
    markdown: Path | None,
    plot: Path | None,
    counting: bool,
    as_json: bool,
) -> None:
    """Measure models here: latency, throughput, start, memory, and where the time of a decision goes.

    A row for each model, task, execution provider, number of threads and batch. The task clip decides on files of a
    second, decoding included; stream pushes hops of a live stream in which the network looks at every hop. Each row has
    a process of its own; warm-up is not counted; the rows take turns, so that what slows the machine slows them all.

    \b
    kws-edge bench
    kws-edge bench --model softmax --threads 1,2,4 --batch 1,8 --task clip
    kws-edge bench --provider cuda --output before.json
    kws-edge bench --provider cuda --compare before.json --markdown bench.md --plot bench.svg

    A provider that you name must run, or the command ends; without --provider those that do not run are listed with
    the reason. A row never carries the name of a provider that does not run it.

    RTF is time taken over the sound's length, core the CPU time of all threads over it.
    A ratio's interval holds what varied between the rounds of the two runs; run the old one again, too, to see what
    else varies from run to run.

    With --count nothing is timed: multiply-adds, bytes and operator calls of a window, of a hop of a stream and of a
    clip are counted in the graph, instructions and cycles where Linux lets this program see them, and what that may
    take on Raspberry Pis is estimated from their published clocks.

    Exit status: 0; 1 some row could not be measured; 2 wrong usage, or a model, provider or file that cannot be used.
    """
    from kws_edge.bench.plot import plot as draw
    from kws_edge.bench.report import BenchReport
    from kws_edge.bench.runner import Plan
    from kws_edge.bench.runner import bench as measure
    from kws_edge.cli.counting import show_counts
    from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models
    from kws_edge.svg import check_name

    if counting:
        if output or compare or markdown or plot or tasks or providers:
            raise click.UsageError("--count beside what is for times; expected --model, --hop or --json alone")
        show_counts(tuple(shipped_models()) if "all" in models else models or (DEFAULT_MODEL,), hop, as_json=as_json)
        return
    if plot:
        check_name(plot)
    old = BenchReport.read(compare) if compare else None
    plan = Plan(
        models=tuple(shipped_models()) if "all" in models else models or (DEFAULT_MODEL,),
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
    if output:
        _write(output, json.dumps(values, allow_nan=False, indent=1) + "\n")
    if markdown:
        _write(markdown, report.to_markdown())
    if plot:
        draw(report.rows, plot)
    if as_json:
        click.echo(json.dumps(values, allow_nan=False))
    else:
        _show(report)
        if old:
            _show_changes(report, old, changes)
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
    from kws_edge.bench.report import NAMES, machine_in_words, tables, verdicts, versions_in_words

    click.echo(f"{machine_in_words(report.machine)}\n{versions_in_words(report.rows)}")
    for table in tables(report.rows):
        print_table(*table, names=NAMES)
    for refusal in report.refused:
        click.echo(f"No row for {refusal}")
    for verdict in verdicts(report.rows):
        click.echo(verdict)
    busy = report.busy
    if busy is not None:
        click.echo(f"The machine was busy (load {busy:.1f}): times hold the wait for other programs; core does not.")


def _show_changes(report: "BenchReport", old: "BenchReport", changes: Sequence["Change"]) -> None:
    from kws_edge.bench.report import case_in_words

    for what in report.differences(old):
        click.echo(f"Not alike: {what}")
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


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None
