"""One of the processes that share a port: it serves as if it were alone, and ends with its parent."""

import contextlib
import errno
import os
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
from kws_edge.server.serving import Server, prepare_process
from kws_edge.server.settings import Settings

_LAST_RESORT: Final = 5.0
"""Seconds after which a process that was to stop at once, and has not, ends in the middle of what it does."""


def serve_one(settings: Settings, sock: socket.socket, parent: Connection, folder: str) -> None:
    """Serve on a socket that is bound until the parent says to stop, by a signal, or is gone.

    The parent is told None once connections are taken, or the error for which the models cannot be loaded. The folder
    is that of the metrics.
    """
    prepare_process(settings)
    try:
        server = _Telling(settings, folder, parent)
    except KwsEdgeError as error:
        parent.send(error)
        return
    except OSError as error:
        parent.send(KwsEdgeError(f"a process cannot start: {error}; expected room for --processes"))
        return
    threading.Thread(target=_stop_at_once, args=(server, parent, folder), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again once it has stopped
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    server.run([sock])


class _Telling(Server):
    def __init__(self, settings: Settings, folder: str, parent: Connection) -> None:
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


def _stop_at_once(server: Server, parent: Connection, folder: str) -> None:
    """In a thread: wait until the parent says so, or is gone."""
    try:
        parent.recv()
    except (EOFError, OSError):
        shutil.rmtree(folder, ignore_errors=True)  # which it would have done
    server.should_exit = server.force_exit = True
    time.sleep(_LAST_RESORT)
    os._exit(1)
