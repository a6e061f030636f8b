"""`serve`, with one process or several, which a parent that loads nothing starts, watches and ends.

Parent and process have a pipe. The process sends None once it takes connections, or the error for which it cannot, and
then `BEAT` every second from its event loop: one that is silent hangs. Its end tells the parent that the process has
ended, and the process that its parent has; whatever else comes to the process means: stop at once.

uvicorn has a supervisor too (`--workers`), which was compared, as of 0.54. There all processes accept from one socket,
so that the first to wake takes most of a burst; a thread answers for a process, also where its event loop hangs; one
that cannot start is started again at once and for ever, or ends all others; one that does not stop is waited for for
ever; metrics of several, or a port that is kept while models load, it does not know. Hence this one.
"""

import contextlib
import logging
import math
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from kws_edge.errors import KwsEdgeError, SettingError
from kws_edge.server.log import configure_logging, warn_of_mistyped_variables
from kws_edge.server.processes.listening import announce, another, reserved
from kws_edge.server.processes.numbers import ROOM, trim
from kws_edge.server.settings import ServerSettings

BEAT: Final = "beat"
"""What a process sends again and again while its event loop goes round and its threads get on."""

_log = logging.getLogger("kws_edge.server")

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus_client, when it is imported, learns where processes keep their numbers."""

_MEMORY: Final = Path("/dev/shm")
"""Where Linux has a file system in memory: numbers that change all the time would wear out a board's card."""

_AGAIN, _MOST_AGAIN = 1.0, 30.0
"""Seconds between two starts in the place of one process: at least, and after many that failed."""

_TRIES: Final = 3
"""Starts in a row that may fail, where no process serves that would have to end."""

_START: Final = 120.0
"""Seconds after which a process that does not serve yet hangs."""

_ASLEEP: Final = 5.0
"""Seconds by which the parent wakes too late where it, and perhaps all, were stopped for a while."""

_MARGIN: Final = 8.0
"""Seconds after which a process that was told to stop, and had its time for it, hangs and is killed."""

_STOPPING: Final = {signal.SIGINT, signal.SIGTERM} | ({signal.SIGHUP} if hasattr(signal, "SIGHUP") else set())
"""The signals on which the parent stops. Those that come to all processes, it passes on, in order."""


def serve(settings: ServerSettings) -> None:
    """Serve with as many processes as the settings say, until told to stop by a signal.

    SIGTERM ends it with status 0, as one process; Ctrl-C raises KeyboardInterrupt, and a second one waits for nothing.

    Raises
    ------
    ModelError, SettingError, ProviderError : the models cannot be served, or the address cannot be listened on.
    KwsEdgeError : a process ended before it could serve.
    """
    if settings.processes == 1:
        from kws_edge.server.serving import serve as serve_alone

        serve_alone(settings)
        return
    if not hasattr(signal, "pthread_sigmask"):
        raise SettingError(f"--processes {settings.processes}; expected 1, since this system has no POSIX signals")
    configure_logging(settings.log_level)
    warn_of_mistyped_variables()
    with _signals() as signals, reserved(settings) as sock, _metrics_folder(settings) as folder:
        _Processes(settings, sock, folder, signals).run()


@dataclass(slots=True)
class _Child:
    process: SpawnProcess
    began: float
    heard: float
    ready: bool = False
    killed: bool = False


class _Processes:
    """Those that serve, and the parent's work for them."""

    def __init__(self, settings: ServerSettings, sock: socket.socket, folder: str, signals: socket.socket) -> None:
        self._settings, self._sock, self._folder, self._signals = settings, sock, folder, signals
        self._children: dict[Connection, _Child] = {}
        self._due = [0.0] * settings.processes  # when each that lacks is to be started
        self._failed_starts = 0
        self._announced = False
        self._signal = 0
        self._deadline = math.inf  # when those that were told to stop are killed
        self._failure: KwsEdgeError | None = None

    def run(self) -> None:
        """Keep as many running as there should be, until a signal or a failure to start."""
        try:
            while self._children or self._due:
                while self._due and min(self._due) <= time.monotonic():
                    self._due.remove(min(self._due))
                    self._start()
                if self._deadline <= time.monotonic():
                    self._kill()
                next_step = min([*self._due, self._deadline, *map(self._limit, self._children.values())])
                began = time.monotonic()
                pause = None if next_step == math.inf else max(0.0, next_step - began)
                ready = wait([self._signals, *self._children], pause)
                if self._signals in ready:  # first: systemd sends a SIGTERM to all, which they may obey sooner
                    for number in self._signals.recv(64):
                        self._obey(number)
                for line in ready:
                    if isinstance(line, Connection):
                        self._hear(line)
                self._end_those_that_hang(late=time.monotonic() - began - (pause or 0.0))
        finally:
            self._kill()  # none, unless this failed
        if self._failure:
            raise self._failure
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt

    def _start(self) -> None:
        try:
            self._spawn()
        except OSError as error:  # no memory, or no file handle, which may be so for a while
            if not self._announced:
                raise KwsEdgeError(f"no process can be started: {error}; expected room for another") from None
            _log.error(f"no process can be started: {error}; trying again")
            self._due.append(time.monotonic() + _AGAIN)

    def _spawn(self) -> None:
        os.makedirs(self._folder, exist_ok=True)  # something that cleans up may have taken it away
        here, there = multiprocessing.Pipe()
        with there, another(self._sock) as sock:
            arguments = self._settings, sock, there, self._folder
            process = multiprocessing.get_context("spawn").Process(target=_serve_one, args=arguments)
            # Ctrl-C and SIGHUP go to all processes of a terminal, SIGTERM to all of a control group. But it is the
            # parent that tells its own, in order: they have all three blocked from their first instruction on, SIGTERM
            # until they serve. (The tracker, once started, leaves the mask alone.)
            resource_tracker.ensure_running()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
            try:
                process.start()
            except OSError:
                here.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        now = time.monotonic()
        self._children[here] = _Child(process, began=now, heard=now)

    def _hear(self, line: Connection) -> None:
        """What a child says, or that it has ended."""
        child = self._children[line]
        try:
            said = line.recv()
        except (EOFError, OSError):
            self._end(line, self._children.pop(line))
            return
        child.heard = time.monotonic()
        if said == BEAT:
            return
        if said:
            self._try_again(said, str(said))
            child.killed = True  # it ends by itself; its end is no news
            return
        child.ready = True
        self._failed_starts = 0
        if not self._announced and not self._due and all(child.ready for child in self._children.values()):
            self._announced = True
            announce(self._sock, self._settings)

    def _end(self, line: Connection, child: _Child) -> None:
        child.process.join()
        mark_process_dead(child.process.pid, self._folder)  # type: ignore[no-untyped-call]
        trim(self._folder, child.process.pid or 0)
        line.close()
        status = child.process.exitcode
        said = f"process {child.process.pid} ended with exit code {status}"
        if self._stopping:
            if status and child.ready:
                _log.error(f"{said} while the server is stopping")
        elif child.ready:
            _log.error(f"{said}; another takes its place")
            self._due.append(child.began + _AGAIN)
        elif child.killed:
            pass
        elif status == 0:  # it had a SIGTERM, which the parent is still to have
            self._obey(signal.SIGTERM)
        elif status == -signal.SIGKILL:
            most = f"--processes {self._settings.processes}"
            self._try_again(None, f"{said} (killed) before it could serve; expected memory for {most}: give fewer")
        else:
            self._try_again(None, f"{said} before it could serve; its log, above, may say why")

    def _try_again(self, error: KwsEdgeError | None, said: str) -> None:
        """After a start that failed: again, later each time, unless nothing would be lost by giving up.

        At the beginning an error, as of a model, ends the program at once, and what may pass after some tries. Later,
        those that serve go on, and the others are tried again for as long as there are any.
        """
        if self._stopping:
            return
        self._failed_starts += 1
        serving = any(other.ready for other in self._children.values())
        lost = not self._announced or not serving
        if lost and (error or self._failed_starts > _TRIES):
            self._fail(error or KwsEdgeError(said))
            return
        pause = min(_MOST_AGAIN, _AGAIN * 2 ** min(self._failed_starts - 1, 10))
        _log.error(f"{said}; trying again in {pause:g} s")
        self._due.append(time.monotonic() + pause)

    def _limit(self, child: _Child) -> float:
        """When a process hangs that is not heard by then."""
        if self._stopping or child.killed:
            return math.inf
        return child.heard + self._settings.hang_timeout if child.ready else child.began + _START

    def _end_those_that_hang(self, late: float) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if late > _ASLEEP:
                child.heard = now  # it may have been asleep as well
            elif self._limit(child) <= now:
                what = f"{now - child.heard:.0f} s" if child.ready else f"{now - child.began:.0f} s, and never served,"
                _log.error(f"process {child.process.pid} says nothing for {what} and is killed")
                child.killed = not child.ready
                child.heard = now + _START  # its end comes first
                child.process.kill()
                if child.killed:
                    self._try_again(None, f"process {child.process.pid} hangs before it could serve")

    @property
    def _stopping(self) -> bool:
        return bool(self._signal or self._failure)

    def _obey(self, number: int) -> None:
        """A signal: the first stops, and decides with what status; Ctrl-C after any other stops at once."""
        at_once = self._stopping and number == signal.SIGINT
        self._signal = self._signal or number
        self._stop(at_once=at_once)

    def _fail(self, error: KwsEdgeError) -> None:
        self._failure = self._failure or error
        self._stop(at_once=not self._announced)

    def _stop(self, *, at_once: bool) -> None:
        self._due.clear()
        grace = 0.0 if at_once else self._settings.drain_seconds + self._settings.shutdown_grace
        self._deadline = min(self._deadline, time.monotonic() + grace + _MARGIN)
        for line, child in self._children.items():
            if not child.ready:  # nobody has anything from it
                child.process.kill()
                continue
            child.process.terminate()
            if at_once:
                with contextlib.suppress(OSError):  # it is gone already
                    line.send(None)

    def _kill(self) -> None:
        self._deadline = math.inf
        for child in self._children.values():
            _log.error(f"process {child.process.pid} does not stop, and is killed")
            child.process.kill()


def _serve_one(settings: ServerSettings, sock: socket.socket, parent: Connection, folder: str) -> None:
    """In a process, which alone needs what this imports."""
    from kws_edge.server.processes.sharing import serve_one

    serve_one(settings, sock, parent, folder)


@contextlib.contextmanager
def _metrics_folder(settings: ServerSettings) -> Iterator[str]:
    """A folder for the numbers of all processes, named in the environment that they will have."""
    before = os.environ.get(METRICS_FOLDER)
    usable = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2 * settings.processes * ROOM
    try:
        folder = tempfile.TemporaryDirectory(
            prefix="kws-edge-", dir=_MEMORY if usable else None, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise SettingError(f"no folder for the metrics of several processes: {error}; expected one in TMPDIR") from None
    with folder as name:
        os.environ[METRICS_FOLDER] = name
        try:
            yield name
        finally:
            del os.environ[METRICS_FOLDER]
            if before is not None:
                os.environ[METRICS_FOLDER] = before


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket on which each signal that stops arrives as a byte, its number."""
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        heeded = [
            number for number in _STOPPING if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP
        ]
        handlers = {number: signal.signal(number, lambda *_: None) for number in heeded}
        signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        try:
            yield here
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in handlers.items():
                signal.signal(number, handler)
