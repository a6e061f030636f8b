"""A 64-bit Arm environment made of packages, whose programs run under qemu's emulation of one program at a time.

Debian's arm64 python3 is unpacked into a folder of its own, wheels for aarch64 are installed beside it, and for each
model of processor there is a `python` that is a script around qemu: whatever the project starts with `sys.executable`
runs emulated too. Nothing of the machine's own is changed.

Where qemu shows the machine's own /proc/cpuinfo to what it emulates, as 7.2 does, the wheel of onnxruntime 1.32 ends at
its import with a segmentation fault: its library for processors finds no Arm there, and reads a null pointer. So there
is a /proc/cpuinfo of the model that is emulated.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paths import ROOT

CPUS: Final[Mapping[str, tuple[str, str, str]]] = {
    "cortex-a53": ("0x41", "0xd03", "fp asimd aes pmull sha1 sha2 crc32 cpuid"),  # Pi 3, Pi Zero 2 W
    "cortex-a72": ("0x41", "0xd08", "fp asimd aes pmull sha1 sha2 crc32 cpuid"),  # Pi 4
    "neoverse-n1": (  # the Pi 5's Cortex-A76 as a server's: dot products of int8, half floats
        "0x41",
        "0xd0c",
        "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
    ),
    "max": ("0x00", "0x051", "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp sve"),
}
"""Models of processors → implementer, part and features, as Linux tells them."""

PACKAGES: Final = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
"""What Python and the wheels need of Debian."""

_APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""
_PYTHON = """\
#!/bin/sh
exec {qemu} -L {root} -cpu {cpu} -0 "$0" {python} "$@"
"""


class UnavailableError(Exception):
    """There is no such environment here; the message says why."""


class Arm64:
    """The environment: `python(cpu)` is its interpreter on a model of processor."""

    def __init__(self, folder: Path) -> None:
        """Make it in an empty folder. Raises UnavailableError where this machine lacks what that needs."""
        self.folder = folder
        self.qemu = emulator()
        self._unpack_debian()
        self.version = (self._debian / "usr/bin/python3").readlink().name.removeprefix("python")
        self.site = folder / "env" / "lib" / f"python{self.version}" / "site-packages"
        (folder / "env" / "bin").mkdir(parents=True)
        (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
        self._install()

    def python(self, cpu: str) -> Path:
        """The interpreter, with all that is installed, on a model of processor."""
        script = self.folder / "env" / "bin" / f"python-{cpu}"
        if not script.exists():
            program = self._debian / f"usr/bin/python{self.version}"
            text = _PYTHON.format(qemu=self.qemu, root=self._root(cpu), cpu=cpu, python=program)
            script.write_text(text)
            script.chmod(0o755)
        return script

    def bare_command(self, cpu: str) -> list[str]:
        """The interpreter without the script: programs that it starts in turn are not emulated, and cannot run."""
        program = self._debian / f"usr/bin/python{self.version}"
        return [str(self.qemu), "-L", str(self._root(cpu)), "-cpu", cpu, str(program)]

    @property
    def _debian(self) -> Path:
        return self.folder / "debian"

    def _unpack_debian(self) -> None:
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise UnavailableError(f"needs {program}, which fetches Debian's packages for arm64")
        apt = self.folder / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "apt.conf").write_text(_APT.format(folder=apt))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--download-only", "--yes", *PACKAGES]):
            done = subprocess.run(
                ["apt-get", "-qq", *command], env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise UnavailableError(f"apt-get {command[0]} for arm64: {_last(done.stderr)}")
        for package in sorted((apt / "cache/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(self._debian)], check=True)
        if not (self._debian / "lib").exists():  # a Debian whose base-files make it a link
            (self._debian / "lib").symlink_to("usr/lib")

    def _root(self, cpu: str) -> Path:
        """The file system that a program sees first: Debian's, with a /proc/cpuinfo of the processor."""
        root = self.folder / f"root-{cpu}"
        if not root.exists():
            (root / "proc").mkdir(parents=True)
            for entry in self._debian.iterdir():
                (root / entry.name).symlink_to(entry)
            implementer, part, features = CPUS[cpu]
            lines = f"BogoMIPS\t: 100.00\nFeatures\t: {features}\nCPU implementer\t: {implementer}\n"
            lines += f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 3\n\n"
            cores = (f"processor\t: {i}\n{lines}" for i in range(os.cpu_count() or 1))
            (root / "proc" / "cpuinfo").write_text("".join(cores))
        return root

    def _install(self) -> None:
        """The project's wheel, and what it and its server need, as wheels for aarch64."""
        wheels = self.folder / "wheels"
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = wheels.glob("*.whl")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(self.site), "--no-compile"]
        command += ["--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64"]
        command += ["--only-binary", ":all:", "--python-version", self.version]
        command += ["--constraint", str(ROOT / "constraints.txt"), f"{wheel}[server]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"pip install for aarch64: {_last(done.stderr)}")


def emulator() -> Path:
    """Qemu for programs of 64-bit Arm. Raises UnavailableError where it is not installed, or not needed."""
    if platform.machine() in ("aarch64", "arm64"):
        raise UnavailableError("this machine is a 64-bit Arm itself; the other tests show that it works there")
    for name in ("qemu-aarch64-static", "qemu-aarch64"):
        if path := shutil.which(name):
            return Path(path)
    raise UnavailableError("needs qemu-aarch64: apt-get install qemu-user-static")


def _last(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith(("E:", "ERROR"))]
    return (errors or text.strip().splitlines() or ["no message"])[-1]
