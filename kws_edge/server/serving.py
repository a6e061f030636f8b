"""The process that serves the app: uvicorn, with what it leaves open."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import time
from typing import Final

import uvicorn

from kws_edge.server.app import create_app
from kws_edge.server.http.connection import limited
from kws_edge.server.http.connections import Connections
from kws_edge.server.http.websocket import stream_protocol
from kws_edge.server.log import configure_logging, warn_of_mistyped_variables
from kws_edge.server.observe import Metrics
from kws_edge.server.processes.listening import announce, listen
from kws_edge.server.service import Service
from kws_edge.server.settings import ServerSettings
from kws_edge.throttle import Throttle

_log = logging.getLogger("kws_edge.server")

_SWITCH_INTERVAL: Final = 0.001
"""Seconds for which a thread may keep the interpreter while another waits for it. With Python's own 5 ms the event loop
waits longer for the threads that decode, and fewer clips a second are answered (bench/load.py)."""

_STREAMS_END, _CLOSE_ANSWERED = 2.0, 0.2
"""Seconds for streams to be told that the server stops, and for their clients to answer the close."""

_TICK, _TICKS = 0.1, 10
"""Seconds of uvicorn's ticks, and how many of them there are between two sweeps."""

_OTHER_FILES: Final = 128
"""File descriptors that are no connections: models, logs, pipes, the page's files."""


def serve(settings: ServerSettings) -> None:
    """Serve in this process until told to stop by a signal; what is in progress then has `shutdown_grace` seconds.

    SIGTERM is an order, so that it ends the process with status 0; Ctrl-C raises KeyboardInterrupt as ever.

    Raises
    ------
    ModelError, SettingError, ProviderError : the models cannot be served, or the address cannot be listened on.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # also while models load; uvicorn raises it again at the end
    prepare_process(settings)
    warn_of_mistyped_variables()
    server = Server(settings)
    sock = listen(settings)
    announce(sock, settings)
    server.run([sock])


def prepare_process(settings: ServerSettings) -> None:
    """What concerns the whole process that serves: its log, its file descriptors, and how its threads take turns."""
    configure_logging(settings.log_level)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _make_room_for(settings.max_connections)


class Server(uvicorn.Server):
    """The app in uvicorn.

    Told to stop, it says that it is not ready and goes on for `drain_seconds`, so that a balancer sees it; then it ends
    the streams, then all else.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics | None = None) -> None:
        """Build the app; arguments and errors are those of `create_app`."""
        app = create_app(settings, metrics)
        self._service: Service = app.state.service
        self._drain = settings.drain_seconds
        self._say_full = Throttle()
        self.connections = Connections(
            settings.max_connections,
            settings.max_client_connections,
            settings.send_timeout,
            settings.trusted_proxies,
        )
        config = uvicorn.Config(
            app,
            http=limited(settings.head_timeout, self.connections),
            ws=stream_protocol(self.connections),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips="*" if "*" in settings.trusted_proxies else list(settings.trusted_proxies),
            ws_max_size=settings.max_message,
            ws_per_message_deflate=False,  # PCM hardly shrinks, and inflating is work that a caller could ask for
            # A pong waits behind audio that is not read yet: who falls behind would end its own streams. A client that
            # has gone sends no audio, which is what ends its stream.
            ws_ping_timeout=None,
            timeout_graceful_shutdown=settings.shutdown_grace,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        """What is to be done again and again; whether to stop."""
        if counter % _TICKS == 0:
            self._look_after()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop. Streams first: uvicorn would cut them off, and a client that is sending would not hear why."""
        self._service.draining = True
        drained = time.monotonic() + self._drain
        while time.monotonic() < drained and not self.force_exit:  # which a second Ctrl-C sets
            await asyncio.sleep(_TICK)
            self._look_after()  # as for all that time there are no ticks
        self._service.stopping.set()
        if self._service.open_streams:
            await asyncio.wait(self._service.open_streams, timeout=_STREAMS_END)
            await asyncio.sleep(_CLOSE_ANSWERED)
        await super().shutdown(sockets)

    def _look_after(self) -> None:
        """End what has had its time, and say what is lacking."""
        self.connections.sweep()
        self._service.pool.end_late_decoders()
        self._watch_files()

    def _watch_files(self) -> None:
        """Say where no more connections can be accepted, of which the event loop says nothing."""
        try:
            os.close(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._say_full.passes():
                _log.error(
                    f"no file descriptors are left, and new connections are closed; {len(self.connections)} are open; "
                    "expected a higher limit (ulimit -n, LimitNOFILE=) or a lower --max-connections"
                )


def _make_room_for(connections: int) -> None:
    """Raise the limit of open files as far as it may be and is needed."""
    try:
        import resource
    except ImportError:  # Windows, which has none
        return
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and soft < needed:
        soft = min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            _log.warning(f"at most {hard} open files: expected {needed} for --max-connections {connections}; give less")
