"""kernels.c and its like, compiled for this machine on first use, and the settings that make a training process fast.

There is no binary to ship or build ahead: the system's C compiler writes a library to the user's cache folder, named by
the hash of source, flags and processor. Without a compiler training still works, through torch, at a lower speed.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from kws_edge.files import replace_file

LANES = 16  # channels of a panel, as in kernels.c

FOLDER = Path(__file__).parent  # where the C sources lie

_SOURCE = FOLDER / "kernels.c"
# Not -ffast-math: it lets the compiler drop the NaN that tells of a diverged run, and flushes denormals process-wide.
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-shared", "-fPIC")
_NATIVE = {"x86_64": "-march=native", "AMD64": "-march=native", "aarch64": "-mcpu=native", "arm64": "-mcpu=native"}
_log = logging.getLogger(__name__)


class _Struct(ctypes.Structure):
    tensors: tuple[Tensor | int | None, ...]  # what the pointers point to


_S = TypeVar("_S", bound=_Struct)


class Activation(_Struct):
    """The struct of the same name in kernels.c; all members are float32 data pointers."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("raw", "scale", "shift", "raw2", "scale2", "shift2")]


class NormGradient(_Struct):
    """The struct of the same name in kernels.c; all members are float32 data pointers."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("grad", "raw", "gain", "slope", "offset")]


class Convolution(_Struct):
    """The struct of the same name in kernels.c: sizes, then float32 data pointers."""

    _fields_ = [(name, ctypes.c_int64) for name in ("inputs", "outputs", "kernel", "dilation")] + [
        (name, ctypes.c_void_p) for name in ("taps", "forward", "backward")
    ]


@functools.cache
def library(source: Path = _SOURCE) -> ctypes.CDLL | None:
    """A C file of this package as a loaded library; None, with one line in the log, where it cannot be had."""
    try:
        return ctypes.CDLL(str(compiled(source)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # the second: no home folder
        _log.warning("training without compiled %s, at a lower speed: %s", source.name, error)
        return None


def run(function: str, clips: int, threads: int, *arguments: Any) -> None:
    """Call a function of kernels.c on `clips` clips, split over threads.

    Arguments are tensors (contiguous; the caller keeps them alive), structures, integers, None, or a list with one
    tensor per thread: a buffer of the thread's own.

    Raises
    ------
    MemoryError : no memory for a clip's working set.
    """
    c_function = getattr(library(), function)
    bounds = [clips * i // threads for i in range(threads + 1)]

    def part(i: int) -> int:
        return int(c_function(*(_as_c(a, i) for a in (bounds[i], bounds[i + 1], *arguments))))

    failed = [part(0)] if threads == 1 else list(_pool(threads, os.getpid()).map(part, range(threads)))
    if any(failed):
        raise MemoryError(f"{function}: no memory for a clip's working set")


def struct(kind: Callable[..., _S], *members: Tensor | int | None) -> _S:
    """A structure for the kernels from its members in order; it keeps its tensors alive."""
    made = kind(*(m.data_ptr() if isinstance(m, Tensor) else m for m in members))
    made.tensors = members
    return made


def tune_process() -> None:
    """Settings for a training process, once at its start: they change the whole process, so a library must not.

    Freed memory stays with the process (without this each step maps and clears its activations anew), and numbers
    too small for full precision count as zero. glibc only; elsewhere the first part does nothing.
    """
    torch.set_flush_denormal(True)
    m_trim_threshold, m_mmap_threshold = -1, -3
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(m_mmap_threshold, 1 << 30)
    mallopt(m_trim_threshold, (1 << 31) - 1)


@functools.cache
def _pool(threads: int, _process: int) -> ThreadPoolExecutor:
    # By process, for a pool does not survive a fork.
    return ThreadPoolExecutor(threads, thread_name_prefix="kws-kernels")


def _as_c(argument: Any, thread: int) -> Any:
    if isinstance(argument, list):
        argument = argument[thread]
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return None if argument is None else ctypes.c_int64(argument)


def compiled(source: Path = _SOURCE) -> Path:
    """The library's path, compiled now where it is not yet in the cache.

    Raises OSError or SubprocessError, or RuntimeError where there is no home folder.
    """
    native = _NATIVE.get(platform.machine())
    if native is None:
        raise OSError(f"no kernels for a {platform.machine()} processor")
    compiler = shlex.split(os.environ.get("CC", "")) or [path for path in [shutil.which("cc")] if path]
    if not compiler:
        raise OSError("no C compiler (cc) on the path")
    flags = (*_FLAGS, native)
    text = source.read_bytes()
    key = hashlib.sha256(b"\0".join([text, " ".join((*compiler, *flags)).encode(), _processor()])).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kws-edge"
    target = cache / f"{source.stem}-{key}.so"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / target.name
            done = subprocess.run(
                [*compiler, *flags, str(source), "-o", made, "-lm"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise OSError(f"{compiler[0]} failed: {done.stderr.strip() or done.returncode}")
            # Two processes that start together both end with a whole library.
            replace_file(target, made.read_bytes(), mode=0o755)
    return target


def _processor() -> bytes:
    """What '-march=native' depends on: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    keep = (b"model name", b"flags", b"Features", b"CPU part")
    return b"\n".join(sorted({line for line in lines if line.startswith(keep)}))
