"""Start, memory and size of the device side, installed as a user installs it.

    python bench/footprint.py --environments FOLDER [--runs 15] [--alternatives]
        [--instead onnxruntime==1.26.0]

The wheel of this checkout goes into a fresh virtual environment in the folder, with what it requires and nothing else.
Everything is run there in fresh processes, in turns, and a figure is the median over the runs:

- start: the command from nothing to its end, warm, and cold for the environment's files, which are dropped from the
  page cache before (the interpreter's own, and what other programs hold, stay);
- memory: resident (RSS), proportional (PSS), in which a page shared by n processes counts 1/n, and the most so far:
  of `classify` at its end, of `listen` once it has heard the demonstration on standard input and waits for more, and
  whose it is there;
- where both go: in one process, what each step adds, and what each package's imports take (the least over the runs).

--alternatives asks the package registry for wheels of other runtimes, and tells their sizes. Results go to
bench/results/footprint.json, the tables to standard output. Linux only.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments

from kws_edge.bench.machine import describe

RESULTS = Path(__file__).parent / "results" / "footprint.json"
SAMPLES = environments.ROOT / "kws_edge" / "samples"
COMMANDS = {
    "classify": ["classify", str(SAMPLES / "yes.flac")],
    "listen": ["listen", "--fast", "--replay", str(SAMPLES / "demo.flac")],
}
ALTERNATIVES = ("onnxruntime", "ai-edge-litert", "tflite-runtime", "ncnn", "tract", "openvino", "MNN")
MEMORY = """
def memory(pid="self"):
    sizes = {}
    for file in ("smaps_rollup", "status"):
        with open(f"/proc/{pid}/{file}") as lines:
            for line in lines:
                name, *rest = line.split()
                if name in ("Rss:", "Pss:", "Private_Dirty:", "VmHWM:"):
                    sizes[name[:-1].lower()] = int(rest[0]) / 1024
    return sizes
"""
COMMAND = f"""
import atexit, json, os, sys
{MEMORY}
atexit.register(lambda: os.write(2, json.dumps(memory()).encode()))
from kws_edge.cli import main
main()
"""
LISTEN = "from kws_edge.cli import main; main()", "listen", "--json", "-"
AT_REST = f"""
import json, subprocess, sys, time
import numpy, soundfile
{MEMORY}
samples, _ = soundfile.read(sys.argv[1], dtype="int16")
listener = subprocess.Popen([sys.executable, "-c", *{LISTEN!r}], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
for block in numpy.array_split(samples, len(samples) // 1600):
    listener.stdin.write(block.tobytes())
    listener.stdin.flush()
before, now = "", "at work"
while now != before:
    time.sleep(0.5)
    with open(f"/proc/{{listener.pid}}/stat") as line:
        before, now = now, line.read().split()[13:15]
parts, name = {{}}, ""
with open(f"/proc/{{listener.pid}}/smaps") as lines:
    for line in lines:
        first, *rest = line.split()
        if not first.endswith(":"):
            name = rest[4] if len(rest) > 4 else ""
        elif first in ("Rss:", "Anonymous:"):
            part = parts.setdefault(name, {{"Rss:": 0, "Anonymous:": 0}})
            part[first] += int(rest[0]) / 1024
print(json.dumps([memory(listener.pid), {{name: list(part.values()) for name, part in parts.items()}}]))
listener.communicate()
"""
STEPS = {
    "python": "pass",
    "click": "import click",
    "numpy": "import numpy",
    "soundfile": "import soundfile",
    "soxr": "import soxr",
    "onnxruntime": "import onnxruntime",
    "kws_edge": "import kws_edge.cli, kws_edge.stream.spotter; from kws_edge import KeywordModel",
    "load the model": "model = KeywordModel.load()",
    "first answer": f"model.classify({str(SAMPLES / 'yes.flac')!r})",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="folder of the virtual environment")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--alternatives", action="store_true", help="sizes of other runtimes' wheels too")
    parser.add_argument(
        "--instead", action="append", default=[], metavar="REQUIREMENT", help="another version of a dependency"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = options.environments.resolve()
    python = environments.make(folder, environments.KWS_EDGE, options.instead)
    rest, whose = measure_rest(python, options.runs)
    results: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe().to_dict(),
        "instead": options.instead,
        "versions": environments.versions(python),
        "runs": options.runs,
        "installed_mb": environments.installed_mb(folder, environments.KWS_EDGE),
        "start": measure_starts(python, options.runs),
        "memory": {
            "classify": measure_memory(python, COMMANDS["classify"], options.runs),
            "listen": rest,
        },
        "map": whose,
        "steps": measure_steps(python, options.runs),
        "imports_ms": measure_imports(python, COMMANDS["listen"], options.runs),
    }
    if options.alternatives:
        results["alternatives"] = {name: wheel_sizes(name) for name in ALTERNATIVES}
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results))


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of the environment, with none of this one's Python settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, env=clean)
    if result.returncode:
        raise SystemExit(f"{arguments} ends with {result.returncode}:\n{result.stderr}")
    return result


def measure_starts(python: Path, runs: int) -> dict[str, dict[str, float]]:
    """Median wall and CPU seconds of `kws-edge classify`, warm and cold, and of an interpreter that does nothing."""
    command = [str(python.with_name("kws-edge")), *COMMANDS["classify"]]
    kinds = {"warm": command, "cold": command, "python alone": ["-c", "pass"]}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    run(python, *command)
    for _ in range(runs):
        for kind, arguments in kinds.items():
            if kind == "cold":
                drop_from_cache(python.parent.parent)
            before, started = os.times(), time.perf_counter()
            run(python, *arguments)
            wall, after = time.perf_counter() - started, os.times()
            cpu = after.children_user - before.children_user + after.children_system - before.children_system
            times[kind].append((wall, cpu))
    return {kind: dict(zip(("wall_s", "cpu_s"), _medians(pairs), strict=True)) for kind, pairs in times.items()}


def drop_from_cache(folder: Path) -> None:
    """Have the system forget the contents of the files in a folder, where no program holds them.

    What was just written, as by an installation, may lie there in pieces of up to 2 MB, which are mapped whole.
    """
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def measure_memory(python: Path, arguments: Sequence[str], runs: int) -> dict[str, float]:
    """Memory in MB at the end of a command."""
    found = [json.loads(run(python, "-c", COMMAND, *arguments).stderr) for _ in range(runs)]
    return {name: statistics.median(sizes[name] for sizes in found) for name in found[0]}


def measure_rest(python: Path, runs: int) -> tuple[dict[str, float], dict[str, float]]:
    """Memory in MB of `kws-edge listen` between two blocks of samples, and whose it is in the last run."""
    found = [json.loads(run(python, "-c", AT_REST, str(SAMPLES / "demo.flac")).stdout) for _ in range(runs)]
    sizes = {name: statistics.median(sizes[name] for sizes, _ in found) for name in found[0][0]}
    return sizes, by_library(found[-1][1])


def by_library(mappings: dict[str, tuple[float, float]]) -> dict[str, float]:
    """MB in memory by whose they are, most first, of what is resident and how much of it is not in the mapped file."""
    sums: dict[str, float] = {}
    for path, (resident, anonymous) in mappings.items():
        package = re.search(r"/site-packages/_?(\w+)", path)
        library = package[1].removesuffix("_data") if package else re.split(r"[-.\d]", Path(path).name)[0]
        own = "its own: heap" if path == "[heap]" else "its own: elsewhere"
        for name, size in ((own, anonymous), (library, resident - anonymous)):
            if size:
                sums[name] = sums.get(name, 0.0) + size
    return dict(sorted(sums.items(), key=lambda part: -part[1]))


def measure_steps(python: Path, runs: int) -> dict[str, dict[str, float]]:
    """What each of `STEPS` adds in one process: CPU ms, and MB of each kind of memory."""
    body = "".join(f"{code}\ntell({name!r})\n" for name, code in STEPS.items())
    code = f"import json, time\n{MEMORY}\nsteps = []\ndef tell(name):\n"
    code += f"    steps.append((name, time.process_time(), memory()))\n{body}print(json.dumps(steps))"
    added: dict[str, dict[str, list[float]]] = {name: {} for name in STEPS}
    for _ in range(runs):
        before: dict[str, float] = {}
        for name, cpu, sizes in json.loads(run(python, "-c", code).stdout):
            now = {"cpu_ms": cpu * 1e3, **sizes}
            for key, value in now.items():
                added[name].setdefault(key, []).append(value - before.get(key, 0.0))
            before = now
    return {name: {key: statistics.median(v) for key, v in parts.items()} for name, parts in added.items()}


def measure_imports(python: Path, arguments: Sequence[str], runs: int) -> dict[str, float]:
    """Milliseconds that the imports of a command take, by package, most first; the least over the runs."""
    code = "from kws_edge.cli import main; main()"
    logs = [run(python, "-X", "importtime", "-c", code, *arguments).stderr for _ in range(runs)]
    return by_package([imports_of(log) for log in logs])


def imports_of(log: str) -> dict[str, float]:
    """Own milliseconds of each module, from what `python -X importtime` writes."""
    lines = re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", log, re.MULTILINE)
    return {module: int(us) / 1e3 for us, module in lines}


def by_package(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The least of each module over the runs, summed by top-level package, most first."""
    least: dict[str, float] = {}
    for modules in runs:
        for module, ms in modules.items():
            least[module] = min(ms, least.get(module, ms))
    sums: dict[str, float] = {}
    for module, ms in least.items():
        package = module.partition(".")[0]
        sums[package] = sums.get(package, 0.0) + ms
    return dict(sorted(sums.items(), key=lambda part: -part[1]))


def wheel_sizes(name: str) -> dict[str, Any]:
    """MB of a package's newest wheel for this platform, packed and unpacked, without what it requires; or why not."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        result = subprocess.run([*command, "--dest", folder, name], capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if result.returncode or not wheels:
            return {"error": "no wheel for this platform"}
        unpacked = sum(entry.file_size for entry in zipfile.ZipFile(wheels[0]).infolist())
        return {"wheel": wheels[0].name, "packed_mb": wheels[0].stat().st_size / 1e6, "unpacked_mb": unpacked / 1e6}


def _medians(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*pairs, strict=True)]


def markdown(results: dict[str, Any]) -> str:
    """The tables."""
    lines = ["| start | wall | CPU |", "| --- | --- | --- |"]
    for kind, times in results["start"].items():
        lines.append(f"| {kind} | {times['wall_s']:.2f} s | {times['cpu_s']:.2f} s |")
    lines += ["", "| memory | resident | proportional | written to | at most |", "| --- | --- | --- | --- | --- |"]
    for name, sizes in results["memory"].items():
        cells = " | ".join(f"{sizes[key]:.1f} MB" for key in ("rss", "pss", "private_dirty", "vmhwm"))
        lines.append(f"| kws-edge {name} | {cells} |")
    lines += ["", "| listen at rest, whose memory | MB |", "| --- | --- |"]
    lines += [f"| {name} | {size:.1f} |" for name, size in results["map"].items() if size >= 0.1]
    lines += ["", "| step | CPU | resident | proportional |", "| --- | --- | --- | --- |"]
    for name, added in results["steps"].items():
        lines.append(f"| {name} | {added['cpu_ms']:.0f} ms | {added['rss']:+.1f} MB | {added['pss']:+.1f} MB |")
    lines += ["", "| imports | of it |", "| --- | --- |"]
    lines.append(f"| all | {sum(results['imports_ms'].values()):.0f} ms |")
    lines += [f"| {package} | {ms:.0f} ms |" for package, ms in list(results["imports_ms"].items())[:12]]
    lines += ["", "| installed | size |", "| --- | --- |"]
    lines.append(f"| all | {sum(results['installed_mb'].values()):.0f} MB |")
    lines += [f"| {name} | {mb:.1f} MB |" for name, mb in list(results["installed_mb"].items())[:10]]
    if "alternatives" in results:
        lines += ["", "| runtime | wheel | packed | unpacked |", "| --- | --- | --- | --- |"]
    for name, wheel in results.get("alternatives", {}).items():
        sizes = (
            " | ".join(f"{wheel[key]:.1f} MB" for key in ("packed_mb", "unpacked_mb")) if "wheel" in wheel else " | "
        )
        lines.append(f"| {name} | {wheel.get('wheel', wheel.get('error'))} | {sizes} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
