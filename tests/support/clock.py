"""A clock that a test sets."""

from types import ModuleType

import pytest


class Clock:
    """Stands in the place of the module time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def clock_of(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Clock:
    """The clock by which these modules go, until the test ends."""
    clock = Clock()
    for module in modules:
        monkeypatch.setattr(module, "time", clock)
    return clock
