"""The parts of the work as bars on a terminal, and as lines elsewhere, such as in a log."""

from time import monotonic
from types import TracebackType

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY = 30.0
"""Seconds between two lines about the same part."""


class TerminalProgress:
    """One bar at a time; a part that is done leaves its time behind."""

    def __init__(self) -> None:
        """Bars go to standard error, lines to standard output."""
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), console=self._console,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._starts: list[tuple[str, float]] = []
        self._last_line = monotonic()

    def __enter__(self) -> "TerminalProgress":
        """Show the bars, where there is a terminal."""
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._bars.stop()

    def start(self, title: str, total: int | None) -> None:
        """A new part of the work."""
        self._starts.append((title, monotonic()))
        if self._task is not None:
            self._bars.stop_task(self._task)
        if not self._console.is_terminal:
            click.echo(title)
            self._last_line = monotonic()
        self._task = self._bars.add_task(title, total=total)

    def minutes(self) -> dict[str, float]:
        """How long each part took until now, in the order in which they began."""
        ends = [at for _, at in self._starts[1:]] + [monotonic()]
        spent: dict[str, float] = {}
        for (title, start), end in zip(self._starts, ends, strict=True):
            spent[title] = spent.get(title, 0) + (end - start) / 60
        return spent

    def step(self) -> None:
        """One more."""
        if self._task is None:
            return
        self._bars.advance(self._task)
        if not self._console.is_terminal and monotonic() - self._last_line >= LINE_EVERY:
            part = self._bars.tasks[self._task]
            click.echo(f"{part.description}: {part.completed:.0f}" + (f" of {part.total:.0f}" if part.total else ""))
            self._last_line = monotonic()

    def say(self, line: str) -> None:
        """Something to keep: above the bars."""
        if self._console.is_terminal:
            self._bars.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line)
