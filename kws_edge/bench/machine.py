"""The machine that a measurement is taken on: what its reader has to know, and what a process may use of it."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, Final

PACKAGES: Final = ("kws-edge", "onnxruntime", "numpy", "soundfile", "soxr")
"""Those whose versions belong to a measurement."""

_ROOT = Path("/")
_UNLIMITED = 1 << 60  # bytes; version 1 of cgroups says so, and a little more, where there is no limit


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is, and how busy it is; None for what the system does not tell.

    Attributes
    ----------
    cpu, system : in words.
    cpus, usable : logical processors, and the numbers of those that this process may run on.
    quota : processors' worth of time that its control group allows, such as 1.5; None for no limit.
    governors : what sets the clock rate of those usable; empty where the system does not tell.
    mhz, max_mhz : the highest clock rate among them at the moment, and the highest possible.
    load : mean number of processes that ran or waited, over the last minute.
    memory_mb, available_mb : all of it, or what the control group allows; what is free for new work.
    clock : the timer of all times, and its resolution in ns.
    """

    cpu: str
    system: str
    cpus: int
    usable: tuple[int, ...]
    quota: float | None
    governors: tuple[str, ...]
    mhz: float | None
    max_mhz: float | None
    load: float | None
    memory_mb: float | None
    available_mb: float | None
    clock: dict[str, Any]

    @property
    def threads(self) -> int:
        """How many threads can run at once."""
        return max(1, min(len(self.usable), self.cpus if self.quota is None else round(self.quota)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "usable": list(self.usable), "governors": list(self.governors)}


def describe(root: Path = _ROOT) -> Machine:
    """Look at this machine; `root` is where the files of Linux's /proc and /sys are looked for."""
    cpus = os.cpu_count() or 1
    usable = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else tuple(range(cpus))
    clocks = [root / f"sys/devices/system/cpu/cpu{n}/cpufreq" for n in usable]
    memory, available = _memory(root)
    info = time.get_clock_info("perf_counter")
    return Machine(
        cpu=_cpu(root),
        system=platform.platform(),
        cpus=cpus,
        usable=usable,
        quota=cpu_quota(root),
        governors=tuple(sorted({text for clock in clocks if (text := _read(clock / "scaling_governor"))})),
        mhz=_highest_mhz(clocks, "scaling_cur_freq"),
        max_mhz=_highest_mhz(clocks, "cpuinfo_max_freq"),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory_mb=memory,
        available_mb=available,
        clock={
            "name": "time.perf_counter",
            "implementation": info.implementation,
            "resolution_ns": round(info.resolution * 1e9, 3),
        },
    )


def versions() -> dict[str, str]:
    """The versions of Python and of `PACKAGES`. Onnxruntime's other builds count as onnxruntime."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            module = sys.modules.get(name.replace("-", "_"))
            found[name] = getattr(module, "__version__", "not installed")
    return found


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Processors' worth of time that this process's control group and those above it allow; None for no limit."""
    limits = []
    for folder in _control_groups(root, "cpu"):
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")  # version 2
        if not quota:
            quota, period = (_read(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def resident_memory() -> float | None:
    """What this process holds in memory now, or, where the system does not tell, the most that it has held; MB."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return peak_memory()


def peak_memory() -> float | None:
    """The most that this process has held in memory, MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, in both versions of the interface."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("" if number == "0" else controller)
        group = PurePosixPath(path)
        for folder in (group, *group.parents):
            yield base / str(folder).lstrip("/")


def _memory(root: Path) -> tuple[float | None, float | None]:
    """All and available memory, MB."""
    lines = (line.split() for line in (_read(root / "proc/meminfo") or "").splitlines())
    sizes = {words[0]: int(words[1]) / 1024 for words in lines if len(words) > 1 and words[1].isdecimal()}
    total, available = sizes.get("MemTotal:"), sizes.get("MemAvailable:")
    for folder in _control_groups(root, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            allowed, taken = (_read(folder / name) or "" for name in (limit, used))
            if allowed.isdecimal() and int(allowed) < _UNLIMITED:
                total = min(total or float("inf"), int(allowed) / 2**20)
                if taken.isdecimal():
                    free = (int(allowed) - int(taken) + _cached(folder)) / 2**20
                    available = min(available or float("inf"), free)
    return total, available


def _cached(folder: Path) -> int:
    """Bytes of files that a control group's count of memory holds, and that are given up for whoever asks for some."""
    words = [line.split() for line in (_read(folder / "memory.stat") or "").splitlines()]
    sizes = {pair[0].removeprefix("total_"): int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}
    return sizes.get("inactive_file", 0) + sizes.get("active_file", 0)


def emulator(root: Path = _ROOT) -> str | None:
    """What emulates this processor, such as "qemu-aarch64"; None where it is a real one, as far as can be seen.

    Qemu hides itself in /proc/self, and not in the other name of the same place.
    """
    try:
        program = (root / "proc/thread-self/exe").readlink().name
    except OSError:
        return None
    return program if program.startswith(("qemu-", "rosetta", "box64", "FEX")) else None


def _cpu(root: Path) -> str:
    """The processor in words, and the board where it has a name."""
    if name := emulator(root):
        return f"{platform.machine()} emulated by {name}"  # where /proc/cpuinfo is of the machine around it
    names = [(_read(root / "proc/device-tree/model") or "").strip("\0")]
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            names.append(value.strip())
            break
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        names.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    return ", ".join(filter(None, names)) or platform.processor() or platform.machine()


def _highest_mhz(clocks: list[Path], name: str) -> float | None:
    rates = [int(text) / 1000 for clock in clocks if (text := _read(clock / name) or "").isdecimal()]
    return max(rates, default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
