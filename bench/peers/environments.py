"""A virtual environment for each peer, and how much each puts on a disk."""

import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
KWS_EDGE: Final = "kws-edge"

REQUIREMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    KWS_EDGE: ("-c", str(ROOT / "constraints.txt"), str(ROOT)),
    "pymicro-wakeword": ("pymicro-wakeword==2.5.0",),
    "openwakeword": ("openwakeword==0.5.1",),
    "openwakeword-tflite": ("openwakeword==0.5.1", "numpy<2"),  # its tflite-runtime is built for numpy 1
    "pyopen-wakeword": ("pyopen-wakeword==1.1.0",),
    "pocketsphinx": ("pocketsphinx==5.1.1",),
}
"""What pip is asked for, by the name of the environment."""


class InstallError(Exception):
    """A peer cannot be installed here; the message is pip's last word on it."""


def python(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def make(folder: Path, name: str, instead: Sequence[str] = ()) -> Path:
    """Make or complete the environment `name` in `folder`; its interpreter. kws-edge is installed anew each time.

    `instead` are requirements that pip is asked for afterwards, such as another version of a dependency.

    Raises InstallError where pip fails, as it does where a peer has no wheel for this platform.
    """
    home = folder / name
    done = home / "installed.txt"
    wanted = "\n".join((*REQUIREMENTS[name], *instead))
    if name == KWS_EDGE or not done.exists() or done.read_text() != wanted:
        venv.create(home, with_pip=True)
        _install(home, [] if name == KWS_EDGE else ["--only-binary", ":all:"], REQUIREMENTS[name])
        if instead:
            _install(home, ["--only-binary", ":all:"], instead)  # boards have no compiler
        done.write_text(wanted)
    return python(home)


def _install(home: Path, options: Sequence[str], requirements: Sequence[str]) -> None:
    command = [str(python(home)), "-m", "pip", "install", "--quiet", *options, *requirements]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise InstallError(errors[-1] if errors else f"pip ends with {result.returncode}")


def versions(interpreter: Path) -> dict[str, str]:
    """What is installed, name → version."""
    code = "import importlib.metadata as m\nfor d in m.distributions(): print(d.name, d.version)"
    output = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout
    found = dict(line.split() for line in output.splitlines())
    return {name: found[name] for name in sorted(found) if name not in {"pip", "setuptools"}}


def installed_mb(folder: Path, name: str) -> dict[str, float]:
    """Size in MB of what an environment has in site-packages beyond an empty one, largest first.

    Entries of one name (`numpy`, `numpy.libs`, `numpy-2.4.6.dist-info`) count together. Compiled bytecode counts, since
    pip writes it.
    """
    empty = folder / "empty"
    if not python(empty).exists():
        venv.create(empty, with_pip=True)
    known = {entry.name for entry in _site_packages(empty).iterdir()} | {"__pycache__"}
    sizes: dict[str, float] = {}
    for entry in _site_packages(folder / name).iterdir():
        if entry.name not in known:
            files = entry.rglob("*") if entry.is_dir() else (entry,)
            part = entry.name.split(".")[0].split("-")[0].lstrip("_")
            sizes[part] = sizes.get(part, 0.0) + sum(f.stat().st_size for f in files if f.is_file()) / 1e6
    return dict(sorted(sizes.items(), key=lambda part: -part[1]))


def _site_packages(home: Path) -> Path:
    return home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
