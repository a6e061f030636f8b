"""The machine: what kind it is, its processor and memory, and the places where programs keep files."""

import os
import platform
import struct
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kws_edge.doctor.findings import ENOUGH_MB, TEMPORARY, Finding, Found, Status
from kws_edge.text import collapsed

OLDEST: Final = (3, 11)

SHARED_MEMORY: Final = Path("/dev/shm")


def kind() -> Found:
    """Whether packages are built for such a system: its Python, word size, C library and processor.

    Where onnxruntime is there all the same, from the system's packages or built, it is taken as it is.
    """
    check = "system"
    bits = 8 * struct.calcsize("P")
    words = f"Python {platform.python_version()}, {platform.machine()}, {bits} bits"
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        message = f"{words}; kws-edge needs Python {oldest} or newer"
        yield Finding(check, Status.PROBLEM, message, f"install Python {oldest} or newer, and kws-edge in a venv of it")
    elif bits < 64 and not find_spec("onnxruntime"):
        advice = (
            "install the 64-bit system, such as Raspberry Pi OS (64-bit): a 64-bit kernel alone is not enough; or, on "
            "Debian 13, apt-get install python3-onnxruntime"
        )
        yield Finding(check, Status.PROBLEM, f"{words}: onnxruntime has no wheels for 32-bit systems", advice)
    elif is_musl() and not find_spec("onnxruntime"):
        advice = "use a system with glibc, in a container python:3.12-slim instead of -alpine; or build onnxruntime"
        yield Finding(check, Status.PROBLEM, f"{words}, musl: onnxruntime has no wheels for musl", advice)
    else:
        yield Finding(check, Status.OK, words)


def is_musl() -> bool:
    """Whether the C library is musl, as on Alpine and OpenWrt."""
    return "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) or "musl" in str(sysconfig.get_config_var("SOABI"))


def places() -> Found:
    """Where programs keep files: the temporary folder, and shared memory."""
    check = "temporary files"
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"kws-edge")
            file.flush()
        yield Finding(check, Status.OK, f"{tempfile.gettempdir()} can be written")
    except OSError as error:
        message = f"no temporary file can be written, as bench and some audio files need: {collapsed(error)}"
        yield Finding(check, Status.WARNING, message, TEMPORARY)
    if sys.platform == "linux" and not os.access(SHARED_MEMORY, os.W_OK):
        message = f"{SHARED_MEMORY} is not there or cannot be written: PipeWire, PulseAudio and JACK may not record"
        advice = "mount -t tmpfs tmpfs /dev/shm; in a container --shm-size 64m. Files, pipes and ALSA work without"
        yield Finding(check, Status.WARNING, message, advice)


def processor() -> Found:
    """What it is, and what a program may use of it."""
    from kws_edge.bench.machine import describe, emulator

    check, machine = "processor", describe()
    if name := emulator():
        message = f"{platform.machine()}, emulated by {name}: answers are valid, times are not"
        yield Finding(check, Status.WARNING, message, "measure speed on a real board")
    numbers = f"{len(machine.usable)} of {machine.cpus} processors usable"
    quota = "" if machine.quota is None else f", {machine.quota:g} of their time"
    governor = f", governor {', '.join(machine.governors)}" if machine.governors else ""
    load = "" if machine.load is None else f", load {machine.load:.1f}"
    yield Finding(check, Status.OK, f"{machine.cpu}: {numbers}{quota}{governor}{load}")
    if machine.quota is not None and machine.quota < 0.5:
        advice = "give the container more, such as docker run --cpus 1"
        yield Finding(check, Status.WARNING, f"its control group may use {machine.quota:g} of a processor", advice)
    if "powersave" in machine.governors:
        advice = "cpupower frequency-set -g schedutil, where the answers come too late"
        yield Finding(check, Status.WARNING, "the governor powersave may keep the clock rate low", advice)
    if machine.load is not None and machine.load > len(machine.usable):
        message = f"busy: load {machine.load:.1f} on {len(machine.usable)} processors"
        yield Finding(check, Status.WARNING, message, "measure with nothing else running; streams may drop samples")


def memory() -> Found:
    """Whether there is enough."""
    from kws_edge.bench.machine import describe

    machine = describe()
    if machine.available_mb is None:
        yield Finding("memory", Status.OK, "unknown on this system")
        return
    message = f"{machine.available_mb:.0f} MB available of {machine.memory_mb or 0:.0f}"
    if machine.available_mb < ENOUGH_MB:
        yield Finding("memory", Status.WARNING, message, f"free some: kws-edge needs about {ENOUGH_MB} MB")
    else:
        yield Finding("memory", Status.OK, message)
