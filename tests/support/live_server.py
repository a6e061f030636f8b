"""A real server on a free port of the loopback: in a thread of the test's process, or as a process of its own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx

from kws_edge.server.serving import Server
from kws_edge.server.settings import ServerSettings

KEY = "0123456789abcdef"
"""For `api_keys`."""

PATIENT = 60.0
"""Seconds after which what should happen at once has not: so many that no machine is too slow for a sound program."""


def wait_for(condition: Callable[[], Any], seconds: float = PATIENT) -> None:
    """Wait until it is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextlib.contextmanager
def live_server(*models: Path, send_buffer: int = 0, **settings: Any) -> Iterator[httpx.Client]:
    """Serve models; gives a client of it, whose `base_url` is where it listens.

    A `send_buffer` in bytes is for tests of readers that are too slow, which would take long to fill the usual one.
    """
    server = Server(ServerSettings.load(models=tuple(map(str, models)), **settings))
    sock = socket.create_server(("127.0.0.1", 0))
    if send_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=PATIENT) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(PATIENT)


class _Forever(Protocol):
    def serve_forever(self) -> None: ...
    def shutdown(self) -> None: ...


@contextlib.contextmanager
def in_thread(server: _Forever) -> Iterator[None]:
    """Let a server of another kind, of http.server or websockets, serve meanwhile."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    """A port of the loopback on which nobody listens, and which nobody else can take meanwhile."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def free_port() -> int:
    """A port that stays free until it is taken: no system hands it out by itself, nor do Ray's workers take it."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def serve_command(*arguments: str) -> list[str]:
    """`kws-edge serve` on a free port, with these arguments; of an option that is given twice the last counts."""
    return [sys.executable, "-c", "from kws_edge.cli import main; main()", "serve", "--port", "0", *arguments]


class ServerProcess:
    """`kws-edge serve` as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            serve_command(*arguments), stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert self.process.stderr
        self.lines = iter(self.process.stderr)
        self.url = next(line["url"] for line in map(json.loads, self.lines) if line["message"] == "listening")
        while True:
            try:
                httpx.get(f"{self.url}/health/live", timeout=PATIENT)
                return
            except httpx.ConnectError:
                time.sleep(0.05)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """An address where each connection gets this once it has sent something."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def accept() -> None:
            while True:
                try:
                    client, _ = sock.accept()
                except OSError:  # it is over
                    return
                with client, contextlib.suppress(OSError):
                    client.recv(65_536)
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65_536):
                        pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            sock.shutdown(socket.SHUT_RDWR)
