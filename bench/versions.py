"""Two wheels of kws-edge against each other: size, start and memory, by the same interpreter and dependencies.

    git worktree add OLD COMMIT && (cd OLD && python -m build --wheel) && python -m build --wheel
    python bench/versions.py OLD/dist/kws_edge-0.1.0-py3-none-any.whl dist/kws_edge-0.2.0-py3-none-any.whl

Each command runs in fresh processes, the two versions in turns. Time is CPU time, of user and system: other work on the
machine changes it less than it changes the clock. A figure is the median over the runs; the ratio is that of the pairs,
with its quartiles. POSIX only.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SAMPLES = Path(__file__).parent.parent / "kws_edge" / "samples"
MAIN = ["-c", "from kws_edge.cli import main; main()"]
COMMANDS = {
    "import kws_edge": ["-c", "import kws_edge"],
    "import KeywordModel": ["-c", "from kws_edge import KeywordModel"],
    "kws-edge --version": [*MAIN, "--version"],
    "kws-edge classify": [*MAIN, "classify", str(SAMPLES / "yes.flac")],
    "kws-edge listen": [*MAIN, "listen", "--fast", "--replay", str(SAMPLES / "demo.flac")],
}


class Run(NamedTuple):
    """CPU time in seconds and the largest resident memory in MB."""

    cpu: float
    memory: float


def run(package: Path, arguments: Sequence[str], folder: Path) -> Run:
    """Run Python with this version of the package, in a folder that holds none."""
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} fails with {package}: status {status}")
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def line(name: str, old: Sequence[Run], new: Sequence[Run]) -> str:
    """A row of the table, of as many runs of each version."""
    ratios = [b.cpu / a.cpu for a, b in zip(old, new, strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else 3 * ratios
    times, sizes = (
        [statistics.median(values) for values in column] for column in zip(_columns(old), _columns(new), strict=True)
    )
    return (
        f"| {name} | {times[0]:.2f} s | {times[1]:.2f} s | {ratio:.2f} ({low:.2f} to {high:.2f}) | "
        f"{sizes[0]:.1f} MB | {sizes[1]:.1f} MB |"
    )


def _columns(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    return [r.cpu for r in runs], [r.memory for r in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs=2, metavar="WHEEL", help="the older, the newer")
    parser.add_argument("--runs", type=int, default=15, help="of each command and version")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error(f"--runs {given.runs}; expected at least 1")
    with tempfile.TemporaryDirectory() as temporary:
        packages = [Path(temporary, name) for name in ("old", "new")]
        empty = Path(temporary, "empty")
        empty.mkdir()
        for wheel, package in zip(given.wheels, packages, strict=True):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(package)
                unpacked = sum(file.file_size for file in archive.infolist())
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {unpacked / 1e6:.2f} MB unpacked")
        print("\n| | CPU time, old | new | ratio | memory, old | new |\n| --- | --- | --- | --- | --- | --- |")
        for name, arguments in COMMANDS.items():
            runs: tuple[list[Run], list[Run]] = ([], [])
            for i in range(given.runs + 1):
                for which in (0, 1) if i % 2 else (1, 0):
                    runs[which].append(run(packages[which], arguments, empty))
            print(line(name, runs[0][1:], runs[1][1:]), flush=True)  # the first runs compiled the modules


if __name__ == "__main__":
    main()
