"""A bar on the terminal while long work runs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """How far long work is, on a terminal: call what it gives after each step of `total`."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(title), total=total)
        yield lambda: progress.advance(task)
