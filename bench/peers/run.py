"""kws-edge beside its peers: the same audio, one core, in turns.

    python bench/peers/run.py --environments FOLDER [--data ../shared/data] [--audio FILE]
        [--kws stream:0.1 --kws stream:0.02 --kws softmax:0.1] [--only pymicro] [--rounds 5]

Each peer is installed into a virtual environment of its own, which is kept in the folder for the next time. In every
round each row is a fresh process, so its load time is measured too; then all of them take turns at stretches of 5 s,
in changing order, so that whatever else the machine does meets them alike. CPU time is that of all threads of a
process, all bound to one core. The ratio is a row's CPU time over that of the first --kws row, in the same round: a
median and the interval that covers it at 95 % (93.75 % with five rounds).

The audio is the worst case for kws-edge: words over read speech, so that its gate, which lets the network rest where
nothing is above the noise, never does. "In a quiet room" is white noise at -66 dBFS, where it does; no peer has a gate.
Every row is also played recordings of a word of its own, and of another, to see that it works: those of "jarvis" say
no "hey", which the models of "hey jarvis" listen for, so they need not find all.

Results go to bench/peers/results.json, the table to standard output.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import environments
import rows as table
import sounds
from report import markdown, ratios, summarise
from rows import PeerRow

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.bench.machine import describe

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
STRETCH = 5  # s that a row processes before it is the next one's turn
WARM_UP = 2  # s at the start of a process, not counted
QUIET = 15  # s of the quiet room in each round
OTHER = "computer"  # what no row listens for
SINGLE = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


class PeerProcess:
    """A row, running."""

    def __init__(self, row: PeerRow, interpreter: Path, core: int) -> None:
        script = HERE / "adapters" / f"{row.adapter}.py"
        command = [str(interpreter), str(script), json.dumps({**row.options, "core": core})]
        self._name = row.name
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | SINGLE
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        ready = self._answer()
        self.load_s, self.load_cpu_s = time.perf_counter() - started, ready["cpu"]
        self.chunk: int = ready["chunk"]
        self.threshold: float | None = ready["threshold"]

    def play(self, file: Path, first: float, seconds: float, *, scores: bool = False) -> dict[str, Any]:
        """Have it process a stretch of a raw file."""
        first, samples = round(first * SAMPLE_RATE), round(seconds * SAMPLE_RATE)
        return self.ask(file=str(file), first=first, samples=samples, scores=scores)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request of adapters/harness.py."""
        assert self._process.stdin
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        raise SystemExit(f"{self._name} ends with:\n{self._process.communicate()[1]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def main() -> None:
    options = parse()
    rows = [table.kws_edge(*model_and_hop(text)) for text in options.kws]
    rows += [row for row in table.PEERS if not options.only or any(name in row.name for name in options.only)]
    homes, installed = install(options.environments, rows)
    usable = [row for row in rows if row.environment in homes]
    with tempfile.TemporaryDirectory() as folder:
        say("audio")
        audio, seconds = make_audio(options, Path(folder))
        quiet = sounds.write(sounds.quiet(QUIET, options.seed), Path(folder, "quiet.raw"))
        checks = {row.name: check(row, homes, options, Path(folder)) for row in usable}
        rounds: dict[str, list[dict[str, Any]]] = {row.name: [] for row in usable}
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            shift = number * len(usable) // options.rounds
            turn = usable[shift:] + usable[:shift]
            for name, measured in one_round(turn, homes, options.core, audio, quiet, seconds).items():
                rounds[name].append(measured)
    results = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe().to_dict(),
        "core": options.core,
        "rounds": options.rounds,
        "seconds": seconds,
        "audio": options.audio.name if options.audio else f"test words over read speech, seed {options.seed}",
        "environments": installed,
        "rows": figures(rows, rounds, checks, seconds),
    }
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--environments", type=Path, required=True, help="folder of the virtual environments")
    parser.add_argument("--data", type=Path, default=environments.ROOT.parent / "shared" / "data")
    parser.add_argument("--audio", type=Path, help="a recording to process, instead of what is made from the data")
    parser.add_argument("--kws", action="append", metavar="MODEL:HOP", help="a row of kws-edge; the first is the unit")
    parser.add_argument("--only", action="append", metavar="PART", help="only peers with this in their row's name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="of audio in a round, a multiple of 5")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.kws = options.kws or ["stream:0.1", "stream:0.02", "softmax:0.1"]
    return options


def model_and_hop(text: str) -> tuple[str, float]:
    """Read MODEL:HOP; a path is made absolute, since the rows run elsewhere."""
    model, _, hop = text.rpartition(":")
    return str(Path(model).resolve()) if model.endswith(".onnx") else model, float(hop)


def install(folder: Path, rows: Sequence[PeerRow]) -> tuple[dict[str, Path], dict[str, Any]]:
    """The environments that the rows need: interpreters by name; versions and sizes, or the error, by name."""
    homes: dict[str, Path] = {}
    installed: dict[str, Any] = {}
    for name in dict.fromkeys(row.environment for row in rows):
        say(f"install {name}")
        try:
            homes[name] = environments.make(folder.resolve(), name)
        except environments.InstallError as error:
            installed[name] = {"error": str(error)}
            continue
        sizes = environments.installed_mb(folder.resolve(), name)
        installed[name] = {"versions": environments.versions(homes[name]), "installed_mb": sizes}
    return homes, installed


def make_audio(options: argparse.Namespace, folder: Path) -> tuple[Path, int]:
    """The raw file, and how many seconds of it are measured."""
    seconds = options.seconds // STRETCH * STRETCH
    if options.audio:
        samples = sounds.recording(options.audio, seconds)
    else:
        samples = sounds.speech(options.data, table.TWENTY, seconds, options.seed)
    return sounds.write(samples, folder / "speech.raw"), seconds


def check(row: PeerRow, homes: dict[str, Path], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """In how many recordings of its own word, and of another, the row finds one."""
    say(f"check {row.name}")
    fired = {}
    with PeerProcess(row, homes[row.environment], options.core) as process:
        for word in (row.word, OTHER):
            recordings = sounds.said(options.data, word, row.recordings, options.seed)
            answers = (process.play(sounds.write(x, folder / "said.raw"), 0, len(x) / SAMPLE_RATE) for x in recordings)
            fired[word] = sum(answer["fired"] > 0 for answer in answers)
    return {
        "word": row.word,
        "fired": fired[row.word],
        "other": OTHER,
        "other_fired": fired[OTHER],
        "count": row.recordings,
    }


def one_round(
    rows: Sequence[PeerRow], homes: dict[str, Path], core: int, audio: Path, quiet: Path, seconds: int
) -> dict[str, dict[str, Any]]:
    """Every row once, in turns."""
    processes = {row.name: PeerProcess(row, homes[row.environment], core) for row in rows}
    measured: dict[str, dict[str, Any]] = {}
    for name, process in processes.items():
        process.play(audio, 0, WARM_UP)
        load = {"load_s": process.load_s, "load_cpu_s": process.load_cpu_s, "hop_ms": process.chunk / 16}
        measured[name] = {**load, "wall": [], "cpu": [], "rested": 0, "fired": 0}
    names = list(processes)
    for first in range(0, seconds, STRETCH):
        for name in names:
            part = processes[name].play(audio, first, STRETCH)
            for key, value in part.items():
                measured[name][key] += value
        names = names[1:] + names[:1]
    for name, process in processes.items():
        with process:
            measured[name]["quiet_cpu"] = sum(process.play(quiet, 0, QUIET)["cpu"])
            measured[name] |= process.ask(memory=True)
    return measured


def figures(
    rows: Sequence[PeerRow], rounds: dict[str, list[dict[str, Any]]], checks: dict[str, dict[str, Any]], seconds: int
) -> list[dict[str, Any]]:
    """The rows of results.json."""
    compared = ratios(rounds, next(iter(rounds)))
    result = []
    for row in rows:
        entry = asdict(row)
        if row.name in rounds:
            mine = rounds[row.name]
            entry |= summarise(mine, seconds, QUIET)
            entry["ratio"] = asdict(compared[row.name])
            entry["check"] = checks[row.name]
            entry["hop_ms"] = mine[0]["hop_ms"]
            entry["rested"] = sum(r["rested"] for r in mine) / sum(len(r["cpu"]) for r in mine)
            entry["fired"] = mine[0]["fired"]
            entry["rounds"] = [{**r, "wall": sum(r["wall"]), "cpu": sum(r["cpu"])} for r in mine]
        result.append(entry)
    return result


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
