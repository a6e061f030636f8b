"""Units of deploy/ under a real systemd: a manager in namespaces of its own, with all of a unit's restrictions.

The manager runs beside whatever started this machine: in its own mount, process and control-group namespaces, with only
the units that a test gives it. What is not possible there is a dynamic user, so the unit keeps the test's user, without
its capabilities.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

MANAGER = next((p for p in (Path("/lib/systemd/systemd"), Path("/usr/lib/systemd/systemd")) if p.exists()), None)
CGROUPS = next(
    (p for p in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None
)
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What ProtectHome and PrivateTmp hide: an interpreter or a checkout that lies there is shown to the unit anyway."""

NAMESPACE = r"""
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/systemd/inaccessible
cd /run/systemd/inaccessible
mkdir -m 000 dir; touch reg; mkfifo fifo; mknod chr c 0 0; mknod blk b 0 0
"$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /
"$MANAGER" --user --unit=default.target &  # not as the first process, which would be the system itself
wait
"""


def shown() -> list[str]:
    """The folders that a unit has to see, of those that its restrictions hide."""
    folders = {str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix, ROOT)}
    return sorted(folder for folder in folders if folder.startswith(HIDDEN))


def adapted(unit: Path, command: str, **settings: str) -> str:
    """A unit's text with another command and other settings; its restrictions stay, and what must be seen is bound."""
    text = re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={command}", unit.read_text(encoding="utf-8"))
    text = re.sub(r"(?m)^(DynamicUser|SupplementaryGroups|StateDirectory)=.*\n", "", text)
    text = text.replace("ProtectHome=yes", "ProtectHome=tmpfs")  # hides as well, and can show a folder
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [f"BindReadOnlyPaths={folder}" for folder in shown()]
    return text.replace("[Service]\n", "[Service]\n" + "\n".join(["DefaultDependencies=no", *lines]) + "\n", 1)


class Manager:
    """A running manager with some units."""

    def __init__(self, runtime: Path, unshare: int) -> None:
        """Know the process that made the namespaces; its child is the first process inside."""
        inside = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0]
        self.enter = ["nsenter", f"--target={inside}", "--mount", "--pid"]  # it answers nobody outside
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}

    def control(self, *words: str) -> str:
        """What `systemctl --user` prints."""
        command = [*self.enter, "systemctl", "--user", "--no-pager", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def property(self, unit: str, name: str) -> str:
        return self.control("show", unit, f"--property={name}", "--value").strip()


@contextlib.contextmanager
def manager(units: dict[str, str], folder: Path) -> Iterator[Manager]:
    """Start one with these units, name → text. Skips where that is not possible, with the reason."""
    if MANAGER is None or shutil.which("systemctl") is None:
        pytest.skip("needs systemd: apt-get install systemd")
    if os.geteuid() != 0 or CGROUPS is None:
        pytest.skip("needs root and version 2 of control groups, to make namespaces")
    for target in ("sysinit", "basic", "network", "sound", "shutdown", "default", "exit"):
        units[f"{target}.target"] = "[Unit]\nDefaultDependencies=no\n"
    units["app.slice"] = "[Unit]\nDefaultDependencies=no\n"
    for name, text in units.items():
        (folder / name).write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="kws-", dir="/dev/shm") as short:  # the path of a socket must be short
        runtime, group = Path(short), CGROUPS / f"kws-test-{os.getpid()}"
        runtime.chmod(0o700)
        group.mkdir()
        environment = {
            **os.environ, "PYTHON": sys.executable, "MANAGER": str(MANAGER), "XDG_RUNTIME_DIR": str(runtime),
            "SYSTEMD_UNIT_PATH": str(folder), "SYSTEMD_LOG_TARGET": "console",
        }  # fmt: skip
        inside = f"echo $$ > {group}/cgroup.procs; exec unshare --cgroup --mount --pid --fork --kill-child --mount-proc"
        process = subprocess.Popen(
            ["bash", "-c", f"{inside} bash -c \"$0\"", NAMESPACE],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not (runtime / "systemd" / "private").exists():
                if process.poll() is not None:
                    pytest.skip(f"systemd does not start in namespaces here: {(process.stderr or sys.stdin).read()}")
                assert time.monotonic() < deadline, "systemd did not start"
                time.sleep(0.05)
            yield Manager(runtime, process.pid)
        finally:
            process.kill()  # and all in its namespace with it
            process.wait()
            remove(group)


def remove(group: Path) -> None:
    """Remove a control group with those below it, as soon as what was in it is gone."""
    deadline = time.monotonic() + 30
    while group.exists():
        with contextlib.suppress(OSError):
            for path in sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True):
                path.rmdir()
            group.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
