"""What `kws-edge listen` does with an event besides showing it: run a command, keep the sound."""

import errno
import json
import logging
import math
import re
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.wav import as_wav
from kws_edge.errors import SettingError
from kws_edge.files import add_file
from kws_edge.text import one_line

if TYPE_CHECKING:
    from kws_edge.audio.sources import Block
    from kws_edge.stream.events import Event

MOST_COMMANDS = 4
"""Commands that run at a time; a further event waits, or is skipped with a warning."""
STANDARD_ERROR = 2
"""Its file descriptor: standard output is for events."""
MOST_SAVED = 1000
"""Recordings that a folder of saved events may hold: 64 MB."""
SAVED = 2.0
"""Seconds of sound that are kept around an event."""

_HALF = round(SAVED / 2 * SAMPLE_RATE)
_PAST = 8.0  # s, of sound held back: an event may come several seconds after the middle of its sound
_MOST_NAME = 50  # characters of a word in a file's name; systems take 255 bytes
_POLL = 0.01  # s, between two looks for a free place
_PATIENCE = 1.0  # s, for commands that still run at the end

_log = logging.getLogger(__name__)


class EventCommand:
    """Runs a shell command for each event, with the event as JSON on its standard input, and does not wait for it."""

    def __init__(self, command: str, output: int = STANDARD_ERROR, *, wait: bool = False) -> None:
        """Say what to run.

        Parameters
        ----------
        output : the file descriptor, or subprocess.DEVNULL, to which goes what the command prints.
        wait : where `MOST_COMMANDS` run, wait until one ends, for a source that does not run away meanwhile.
        """
        self._command, self._output, self._wait = command, output, wait
        self._named = one_line(command)
        self._running: list[subprocess.Popen[bytes]] = []

    def __call__(self, event: "Event") -> None:
        """Start the command."""
        self._forget_ended()
        while self._wait and len(self._running) >= MOST_COMMANDS:
            time.sleep(_POLL)
            self._forget_ended()
        if len(self._running) >= MOST_COMMANDS:
            _log.warning("%s: %d still run; event at %.1f s skipped", self._named, MOST_COMMANDS, event.time)
            return
        try:
            process = subprocess.Popen(
                self._command, shell=True, stdin=subprocess.PIPE, stdout=self._output, stderr=self._output
            )
        except OSError as error:  # as where the system has no process or memory left for the moment
            _log.warning("%s: %s; event at %.1f s skipped", self._named, error.strerror, event.time)
            return
        self._running.append(process)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(event.to_dict(), allow_nan=False).encode() + b"\n")
            process.stdin.close()
        except OSError:  # it ended without reading it, which it may
            pass

    def _forget_ended(self) -> None:
        for process in [p for p in self._running if p.poll() is not None]:
            self._running.remove(process)
            if process.returncode:
                _log.warning("%s: exit status %d", self._named, process.returncode)

    def close(self) -> None:
        """Wait a little for those that still run, and then leave them."""
        end = time.monotonic() + _PATIENCE
        for process in self._running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.warning("%s: still runs", self._named)
        self._forget_ended()  # which tells of those that failed


class EventSaver:
    """Keeps `SAVED` seconds around each event as a WAV file; the sound of lost samples is zeros.

    Blocks and events may come from different threads.
    """

    def __init__(self, folder: Path, most: int = MOST_SAVED) -> None:
        """Save into `folder`, which is made where it is not there, until it holds `most` WAV files.

        Raises SettingError where that is not possible, or no file can be made in it.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as e:
            raise SettingError(f"{folder}: {e.strerror}; expected a folder to save events in") from None
        self._folder, self._most = folder, most
        self._held = sum(1 for _ in folder.glob("*.wav"))
        self._failed = False
        self._blocks: deque[tuple[int, F32]] = deque()  # with where they begin, in samples of the stream
        self._end = 0
        self._decided: float = math.inf
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._saved = 0

    def add(self, block: "Block") -> None:
        """Take the next block."""
        with self._lock:
            start = self._end + block.dropped
            self._blocks.append((start, block.samples))
            self._end = start + len(block.samples)
            oldest = min(self._end, self._decided) - _PAST * SAMPLE_RATE
            while self._blocks[0][0] + len(self._blocks[0][1]) <= oldest:
                self._blocks.popleft()
            for event in [e for e in self._waiting if _middle(e) + _HALF <= self._end]:
                self._save(event)

    def decided(self, time: float) -> None:
        """Know that all events up to a stream time have come, and keep the sound since, however much it is.

        Where this is never called, the events of a block are expected before the next.
        """
        self._decided = round(time * SAMPLE_RATE)

    def __call__(self, event: "Event") -> None:
        """Keep the sound around an event, as soon as all of it is there."""
        with self._lock:
            self._waiting.append(event)
            if _middle(event) + _HALF <= self._end:
                self._save(event)

    def close(self) -> None:
        """Save those that were waiting for sound that does not come any more."""
        with self._lock:
            for event in self._waiting[:]:
                self._save(event)

    def _save(self, event: "Event") -> None:
        self._waiting.remove(event)
        self._saved += 1
        first, last = max(0, _middle(event) - _HALF), min(self._end, _middle(event) + _HALF)
        samples = np.zeros(max(0, last - first), np.float32)
        for start, block in self._blocks:
            begin, end = max(first, start), min(last, start + len(block))
            if begin < end:
                samples[begin - first : end - first] = block[begin - start : end - start]
        word = re.sub(r"\W+", "_", event.label or f"not_sure_{event.guess or event.reason}")[:_MOST_NAME]
        when = time.strftime("%Y%m%d-%H%M%S")
        if self._held >= self._most:
            self._refuse(
                f"{self._folder}: holds {self._held} recordings, the most that --save-most allows; move some away"
            )
            self._held = sum(1 for _ in self._folder.glob("*.wav"))
            return
        sound = as_wav(samples)
        try:
            add_file(lambda number: self._folder / f"{when}_{number:04}_{word}.wav", self._saved, sound)
        except OSError as e:
            what = "the disk is full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else e.strerror
            self._refuse(f"{self._folder}: event not saved: {what}; make room, or end with --save-events")
        else:
            self._held, self._failed = self._held + 1, False

    def _refuse(self, why: str) -> None:
        """Say why an event is not kept; once, until one is again."""
        if not self._failed:
            _log.warning("%s", why)
        self._failed = True


def _middle(event: "Event") -> int:
    return round((event.start + event.end) / 2 * SAMPLE_RATE)
