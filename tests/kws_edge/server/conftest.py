"""Shared by the tests of the server: one that serves the small model, with its usual settings."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import live_server


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[httpx.Client]:
    with live_server(path) as client:
        yield client
