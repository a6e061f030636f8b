"""Load on `kws-edge serve`, over the loopback: requests a second, latencies, live streams, memory.

    apt-get install wrk
    python bench/load.py            print the tables
    python bench/load.py --docs     and write bench/results/load.json, and the tables into docs/measurements/server.md

Clips: wrk posts a one-second WAV over and over, with and without micro-batching, and to as many processes as there are
cores, while /health/live is asked 20 times a second. "Direct" is a loop over `classify_batch` with a decoded clip, in
one thread and process. Streams: each sends 0.1 s every 0.1 s, of sound that the network has to look at, or with four
fifths of it quiet, which the gate spares it; one in ten asks for its posteriors, and the lag is the time from sending
the last sample of a hop to hearing of it. "Per core" counts the server's own CPU time, which neighbours distort less
than the clock on the wall; whatever makes the load shares the machine. "Of direct" is the requests a second against
those of the loop. Of several processes CPU time and memory are summed, the latter with what they share in each.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.asyncio.client import connect

from kws_edge.audio.wav import as_wav
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "load.json"
DOCS = ROOT / "docs" / "measurements" / "server.md"
BEGIN, END = "<!-- load: written by bench/load.py --docs -->", "<!-- /load -->"
LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "audio/wav"
local file = io.open("{clip}", "rb")
wrk.body = file:read("*a")
function done(summary, latency)
  io.write(string.format(
    '{{"answered": %d, "microseconds": %d, "refused": %d, "failed": %d, "p50": %d, "p95": %d, "p99": %d}}',
    summary.requests - summary.errors.status, summary.duration, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
"""
CORES = os.cpu_count() or 1
FOLLOWS = 0.5  # s of lag with which a stream still follows


@dataclass
class RunningServer:
    """A server that runs as a process of its own, perhaps with more below it.

    Attributes
    ----------
    log : the lines that it has written since it listens.
    status : with which it ended; None while it runs.
    """

    url: str
    pid: int
    log: list[str] = field(default_factory=list)
    status: int | None = None

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids()]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident megabytes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def pids(self) -> list[int]:
        """Its process, and those that it has started."""
        found = [self.pid]
        for pid in found:  # which grows: the decoders are children of children, started from any thread
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += map(int, file.read_text().split())
        return found


@contextmanager
def server(model: Path, **settings: object) -> Iterator[RunningServer]:
    """Serve a model until the block ends; settings are those of `kws-edge serve`."""
    flags = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    code = "from kws_edge.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--models", str(model), "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        lines = (json.loads(line) for line in process.stderr)
        url = next(line["url"] for line in lines if line["message"] == "listening")
        running = RunningServer(url, process.pid)
        reader = threading.Thread(target=running.log.extend, args=(process.stderr,), daemon=True)
        reader.start()  # or the pipe fills
        while True:
            try:
                httpx.get(f"{url}/health/live")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        yield running
    finally:
        process.terminate()
        status = process.wait(60)
    reader.join()
    running.status = status


def word() -> np.ndarray:
    """A second of sound, float32 [16000]: noise in the rhythm of speech, which costs what a word costs."""
    rng = np.random.default_rng(0)
    return (rng.normal(0, 0.1, 16_000) * (0.6 + 0.4 * np.sin(np.arange(16_000) / 800))).astype(np.float32)


def direct(model: Path, seconds: int) -> dict[str, float]:
    loaded, clip = KeywordModel.load(model), word()[np.newaxis]
    loaded.classify_batch(clip)
    runs, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        loaded.classify_batch(clip)
        runs += 1
    return {
        "per_second": round(runs / (time.perf_counter() - wall), 1),
        "per_core": round(runs / (time.process_time() - cpu), 1),
    }


def clips(running: RunningServer, clients: int, seconds: int) -> dict[str, float]:
    health: list[float] = []
    done = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=running.url) as client:
            while not done.is_set():
                began = time.perf_counter()
                client.get("/health/live").raise_for_status()
                health.append(time.perf_counter() - began)
                time.sleep(0.05)

    with tempfile.TemporaryDirectory() as folder:
        clip, script = Path(folder) / "clip.wav", Path(folder) / "post.lua"
        clip.write_bytes(as_wav(word()))
        script.write_text(LUA.format(clip=clip))
        asking = threading.Thread(target=ask)
        cpu = running.cpu()
        asking.start()
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "-s", str(script), f"{running.url}/v1/classify"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        cpu = running.cpu() - cpu
        done.set()
        asking.join()
    found = json.loads(output[output.index("{") :])
    return {
        "clients": clients,
        "per_second": round(found["answered"] / found["microseconds"] * 1e6, 1),
        "per_core": round(found["answered"] / cpu, 1),
        **{f"{p}_ms": round(found[p] / 1e3, 1) for p in ("p50", "p95", "p99")},
        "refused": found["refused"],
        "failed": found["failed"],
        "health_p99_ms": round(1e3 * float(np.quantile(health, 0.99)), 1),
        "memory_mb": round(running.memory()),
    }


async def streams(running: RunningServer, count: int, seconds: int, share: float) -> dict[str, float]:
    """Live streams with sound for a share of their time, in turns of five seconds."""
    sound = (word() * 32767).astype("<i2").reshape(10, 1600)
    quiet = np.random.default_rng(1).integers(-8, 8, (10, 1600)).astype("<i2")
    lags: list[float] = []
    ended = 0

    async def one(i: int) -> None:
        nonlocal ended
        probe = i % 10 == 0
        url = f"{running.url.replace('http', 'ws')}/v1/stream?posteriors={str(probe).lower()}"
        async with connect(url, compression=None) as socket:
            sent: dict[int, float] = {}

            async def read() -> None:
                async for text in socket:
                    message = json.loads(text)
                    if message["type"] == "hop":
                        lags.append(time.monotonic() - sent.pop(round(message["time"] * 10)))

            reader = asyncio.create_task(read())
            start = time.monotonic() + (i % 100) / 1000  # clients are not in step
            for k in range(round(seconds * 10)):
                await asyncio.sleep(max(0.0, start + k / 10 - time.monotonic()))
                sent[k + 1] = time.monotonic()
                chunks = sound if (k + 13 * i) % 50 < 50 * share else quiet
                await socket.send(chunks[k % 10].tobytes())
            if reader.done():
                ended += 1
            reader.cancel()

    cpu, wall = running.cpu(), time.monotonic()
    await asyncio.gather(*(one(i) for i in range(count)))
    cpu, wall = running.cpu() - cpu, time.monotonic() - wall
    while "\nkws_edge_streams 0.0" not in httpx.get(f"{running.url}/metrics").text:  # what was not yet heard of them
        await asyncio.sleep(0.1)
    p50, p99 = np.quantile(lags, [0.5, 0.99])
    return {
        "streams": count,
        "sound": share,
        "lag_p50_ms": round(1e3 * float(p50), 1),
        "lag_p99_ms": round(1e3 * float(p99), 1),
        "follows": bool(p99 < FOLLOWS and not ended),
        "cores": round(cpu / wall, 2),
        "streams_per_core": round(count * seconds / cpu),
        "memory_mb": round(running.memory()),
    }


def table(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    print("  ".join(f"{name:>13}" for name in names))
    for row in rows:
        print("  ".join(f"{row.get(name, '')!s:>13}" for name in names), flush=True)


def markdown(result: dict[str, Any]) -> str:
    """The tables as docs/measurements/server.md has them."""

    def lines(columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
        cells = [[str(row.get(key, "")) for key in columns.values()] for row in rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in [[*columns], ["---:"] * len(columns), *cells])

    latency = {"p50, ms": "p50_ms", "p95": "p95_ms", "p99": "p99_ms", "health p99": "health_p99_ms"}
    rates = {"a second": "per_second", "of direct": "of_direct", "per core": "per_core"}
    clips_columns = {"clients": "clients", **rates, "refused": "refused", **latency, "MB": "memory_mb"}
    lag = {"lag p50, ms": "lag_p50_ms", "lag p99": "lag_p99_ms", "follows": "follows"}
    stream_columns = {
        "processes": "processes",
        "streams": "streams",
        "sound": "sound",
        **lag,
        "per core": "streams_per_core",
        "MB": "memory_mb",
    }
    direct, after = result["direct"], result["batched"][-1]["memory_after_mb"]
    all_after = result["processes"][-1]["memory_after_mb"]
    return f"""\
Model `{result["model"]}` on {result["machine"]}, Python {result["python"]}, {result["seconds"]} s a row. The model
called directly in a loop, decoded clips of a second, one thread: {direct["per_second"]} a second, {direct["per_core"]}
per core.

Clips that wait go through the network together (`--max-batch 16`); memory a second after the last row {after} MB:

{lines(clips_columns, result["batched"])}

One by one (`--max-batch 1`):

{lines(clips_columns, result["one by one"])}

On all cores (`--processes {result["cores"]}`), with the CPU time and memory of all processes together; memory a second
after the last row {all_after} MB:

{lines(clips_columns, result["processes"])}

Live streams, each 0.1 s of audio every 0.1 s; "sound" is the share of the time in which there is any:

{lines(stream_columns, result["streams"])}"""


def write_docs(begin: str, text: str, end: str) -> None:
    """Put a text between two marks in docs/measurements/server.md."""
    before, rest = DOCS.read_text().split(begin)
    DOCS.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def main() -> None:
    numbers = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=shipped_models()[DEFAULT_MODEL])
    parser.add_argument("--seconds", type=int, default=5, help="of each row, a whole number, as wrk takes it")
    parser.add_argument("--clients", type=numbers, default=[1, 4, 16, 50, 64])
    parser.add_argument("--streams", type=numbers, default=[25, 50, 100, 200])
    parser.add_argument("--docs", action="store_true", help="rewrite the tables in docs/measurements/server.md")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("no wrk, which posts the clips; expected `apt-get install wrk` to have put it on the PATH")

    result: dict[str, Any] = {
        "model": given.model.stem,
        "machine": f"{platform.machine()}, {CORES} cores, load before {os.getloadavg()[0]:.1f}",
        "cores": CORES,
        "python": platform.python_version(),
        "seconds": given.seconds,
        "direct": direct(given.model, given.seconds),
    }
    table("Direct", [result["direct"]])
    for name, settings in (
        ("batched", {}),
        ("one by one", {"max_batch": 1}),
        ("processes", {"processes": CORES}),
    ):
        # All come from one address, which stands for many.
        many = {"max_queue": 128, "max_client_queue": 128, "max_client_uploads": 64}
        with server(given.model, **many, **settings) as running:
            clips(running, given.clients[0], 1)  # to warm up
            rows = [clips(running, clients, given.seconds) for clients in given.clients]
            time.sleep(1)
            rows[-1]["memory_after_mb"] = round(running.memory())
        for row in rows:
            row["of_direct"] = round(row["per_second"] / result["direct"]["per_second"], 2)
        result[name] = rows
        table(f"Clips, {name}", rows)
    result["streams"] = []
    for processes in (1, CORES):
        with server(given.model, max_streams=1000, max_client_streams=1000, processes=processes) as running:
            result["streams"] += [
                {"processes": processes, **asyncio.run(streams(running, count, given.seconds, share))}
                for share in (1.0, 0.2)
                for count in given.streams
            ]
    table("Streams", result["streams"])
    if given.docs:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
        write_docs(BEGIN, markdown(result), END)


if __name__ == "__main__":
    main()
