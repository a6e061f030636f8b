"""Decode untrusted audio in a process that can do nothing else, and is killed if it takes too long.

Decoders are C, and have had faults that a file can use. This process has no keys, no sockets and no models; once it has
loaded the decoders it can open no file and start no process, its memory is bounded, and what they print goes nowhere.

A request is `_HEAD`, then the name and the bytes of a file. The answer is `_ANSWER`, a text in JSON, and the samples.
"""

import contextlib
import io
import json
import logging
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, Final

import numpy as np

from kws_edge.audio.channels import Channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import Audio, load
from kws_edge.errors import AudioError, TooMuchAudioError

_log = logging.getLogger("kws_edge.server")

_HEAD: Final = struct.Struct("<IQBddd")  # bytes of name and file; channel; most seconds, samples, and time for it
_ANSWER: Final = struct.Struct("<?IQ")  # whether it was decoded; bytes of the text and of the samples
_MEMORY: Final = 2**28  # bytes more than it has at its start, and four times the file's
_ENDING: Final = 0.5  # s, for one that ends by itself
_MOST_TEXT: Final = 2**20  # bytes
_KEPT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR")
"""What the process has of the environment, in which there are keys."""


class Decoder:
    """Decodes one file at a time in a process of its own, which is started again where it has died."""

    def __init__(self, *, max_seconds: float, max_samples: float, max_body: int, timeout: float) -> None:
        """Start it; the limits are for each file, the timeout in seconds of processor time."""
        self._limits = max_seconds, max_samples, timeout
        self._timeout, self._max_body = timeout, max_body
        self._most = 4 * math.ceil(max_seconds * SAMPLE_RATE + 1)  # bytes of samples
        self._began: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def load(self, body: bytes, name: str, channel: Channel | None = None) -> Audio:
        """Decode the bytes of a file, called by this name in messages; `channel` is as for `audio.load`.

        Raises
        ------
        AudioError : it cannot be decoded, or not within the limits.
        """
        self._began = time.monotonic()
        try:
            return self._load(body, name, channel)
        finally:
            self._began = None

    def end_if_late(self, seconds: float) -> None:
        """End the process where it has been at one file for so long, by the clock; for another thread to call."""
        began, process = self._began, self._process
        if began is not None and process and time.monotonic() - began > seconds:
            process.kill()

    def _load(self, body: bytes, name: str, channel: Channel | None) -> Audio:
        process = self._process if self._process and self._process.poll() is None else self._start()
        assert process.stdin
        assert process.stdout
        named = name.encode(errors="replace")
        try:
            process.stdin.write(_HEAD.pack(len(named), len(body), _CHANNELS.index(channel), *self._limits) + named)
            process.stdin.write(body)
            process.stdin.flush()
            decoded, text_size, size = _ANSWER.unpack(_exactly(process.stdout, _ANSWER.size))
            if text_size > _MOST_TEXT or size > self._most:
                raise EOFError  # a file has got hold of it, perhaps
            text = json.loads(_exactly(process.stdout, text_size))
            samples = np.frombuffer(_exactly(process.stdout, size), np.float32)
            if decoded:
                return Audio(samples, text["rate"], text["channels"], tuple(text["warnings"]))
            refused = AudioError(text["error"])
        except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):  # what it says next is no better
            raise self._failed(process, name) from None
        raise refused

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    pipe and pipe.close()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            # -P: nothing is imported from the folder in which the server happens to run.
            [sys.executable, "-P", "-m", "kws_edge.server.decoder", str(self._max_body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        return self._process

    def _failed(self, process: subprocess.Popen[bytes], name: str) -> AudioError:
        """The error that a process is which has ended in the middle of a file."""
        try:
            status = process.wait(_ENDING)  # by itself, which tells why
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self.close()
        if hasattr(signal, "SIGPROF") and status == -signal.SIGPROF:
            return AudioError(
                f"{name}: not decoded within {self._timeout:g} s of processor time; expected a shorter or simpler file"
            )
        _log.error(f"a decoder ended with exit code {status} in the middle of a file, and is started again")
        return AudioError(f"{name}: its decoder failed; expected a sound file, such as ffmpeg writes")


_CHANNELS: Final[tuple[Channel | None, ...]] = (None, "mix", *range(1, 254))
"""What a byte of the head stands for."""


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    """Decode what comes on standard input until it ends."""
    # Signals to all processes of a terminal or unit are for the server, which ends this one by closing its pipe.
    for number in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, number):
            signal.signal(getattr(signal, number), signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what a decoder prints must not come between the answers
    _shut_in(int(sys.argv[1]))
    while head := requests.read(_HEAD.size):
        name_size, size, channel, max_seconds, max_samples, timeout = _HEAD.unpack(head)
        name, body = requests.read(name_size).decode(), requests.read(size)
        with _at_most(timeout):
            text, samples = _decode(body, name, _CHANNELS[channel], max_seconds, max_samples)
        written = json.dumps(text).encode()
        answers.write(_ANSWER.pack("error" not in text, len(written), len(samples)) + written)
        answers.write(samples)
        answers.flush()


def _decode(
    body: bytes, name: str, channel: Channel | None, max_seconds: float, max_samples: float
) -> tuple[dict[str, Any], bytes]:
    file = io.BytesIO(body)
    file.name = name  # which errors mention
    try:
        audio = load(file, channel=channel, max_seconds=max_seconds, max_samples=max_samples)
    except TooMuchAudioError as error:
        return {"error": f"{error}; the server's --max-clip-seconds and --max-clip-samples"}, b""
    except AudioError as error:
        return {"error": str(error)}, b""
    except MemoryError:
        problem = f"{name}: takes more memory than there is for one file; expected a shorter or simpler one"
        return {"error": problem}, b""
    told = {"rate": audio.source_rate, "channels": audio.source_channels, "warnings": audio.warnings}
    return told, audio.samples.tobytes()


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End this process when it took so much processor time, in whatever C it is; without POSIX there is no limit."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _shut_in(max_body: int) -> None:
    """Load all that decoding needs, then give up what it does not need; as far as the system can do that."""
    import soundfile
    import soxr  # noqa: F401

    warm = io.BytesIO()
    soundfile.write(warm, np.zeros(8_000, np.float32), 8_000, format="WAV")
    load(warm.getvalue())
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 0}
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as file:
        limits["RLIMIT_AS"] = int(file.read().split()[0]) * resource.getpagesize() + _MEMORY + 4 * max_body
    for name, limit in limits.items():
        if hasattr(resource, name):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), (limit, limit))


if __name__ == "__main__":
    main()
