"""One of the processes that share a port: it serves as if it were alone, and ends with its parent."""

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Final

from kws_edge.errors import KwsEdgeError
from kws_edge.server.observe import Metrics
from kws_edge.server.processes.listening import BACKLOG, refusal
from kws_edge.server.processes.numbers import reserve
from kws_edge.server.processes.supervisor import BEAT
from kws_edge.server.serving import Server, prepare_process
from kws_edge.server.settings import ServerSettings

_BEATS: Final = 10
"""uvicorn's ticks, of a tenth of a second, between two beats."""

_LAST_RESORT: Final = 5.0
"""Seconds after which a process that was to stop at once, and has not, ends in the middle of what it does."""


def serve_one(settings: ServerSettings, sock: socket.socket, parent: Connection, folder: str) -> None:
    """Serve on a socket that is bound until the parent says to stop, by a signal, or is gone.

    The parent is told None once connections are taken, or the error for which the models cannot be loaded; and then
    that the event loop goes round. The folder is that of the metrics.
    """
    prepare_process(settings)
    try:
        reserve(folder)
        server = _Telling(settings, folder, parent)
    except KwsEdgeError as error:
        parent.send(error)
        return
    except OSError as error:
        parent.send(KwsEdgeError(f"a process cannot start: {error}; expected room for --processes in {folder}"))
        return
    threading.Thread(target=_stop_at_once, args=(server, parent, folder), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again once it has stopped
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    server.run([sock])


class _Telling(Server):
    def __init__(self, settings: ServerSettings, folder: str, parent: Connection) -> None:
        super().__init__(settings, Metrics(folder))
        self._parent, self._settings = parent, settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so, or that another program has taken the port meanwhile."""
        await super().startup(sockets)
        error = None
        try:
            for sock in sockets or ():
                sock.listen(BACKLOG)  # as it does already, unless that failed, of which uvloop says nothing
        except OSError:
            error = refusal(self._settings, errno.EADDRINUSE)
            self.should_exit = True
        with contextlib.suppress(OSError):  # it is gone, as the thread will see
            self._parent.send(error)

    async def on_tick(self, counter: int) -> bool:
        """Tell the parent that the event loop goes round, unless a thread hangs."""
        busy = self._service.pool.longest > self._settings.hang_timeout + self._settings.inference_timeout
        if counter % _BEATS == 0 and not busy and not self.should_exit:
            with contextlib.suppress(OSError):
                if select.select([], [self._parent], [], 0)[1]:  # or a parent that hangs would stop this one too
                    self._parent.send(BEAT)
        return await super().on_tick(counter)


def _stop_at_once(server: Server, parent: Connection, folder: str) -> None:
    """In a thread: wait until the parent says so, or is gone."""
    try:
        parent.recv()
    except (EOFError, OSError):
        shutil.rmtree(folder, ignore_errors=True)  # which it would have done
    server.should_exit = server.force_exit = True
    time.sleep(_LAST_RESORT)
    os._exit(1)
