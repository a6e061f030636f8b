"""`kws-edge stream-cost`: what listening costs on this machine."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from kws_edge.cli.options import Number, hop_option, model_option

if TYPE_CHECKING:
    from kws_edge.arrays import F32
    from kws_edge.stream.spotter import Spotter


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stream cost.

    Attributes
    ----------
    hops, runs : how many were timed, and in how many of them the network ran.
    p50, p95, p99 : milliseconds from the last sample of a hop to its events.
    real_time_factor : time taken over time streamed.
    core_share : CPU time of all threads over time streamed: 0.02 is 2 % of one core.
    memory : resident, MB; None where the system does not tell.
    """

    hops: int
    runs: int
    p50: float
    p95: float
    p99: float
    real_time_factor: float
    core_share: float
    memory: float | None


@click.command("stream-cost")
@click.argument("file", required=False, metavar="[FILE]")
@model_option
@hop_option
@click.option(
    "--seconds",
    type=Number(5),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stream at most this much sound.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
def stream_cost(file: str | None, model: str | None, hop: float, seconds: float, as_json: bool) -> None:
    """Measure what a live stream costs on this machine.

    It prints the time per hop, the share of a core, and the memory. FILE is a recording, which is streamed as fast as
    possible. Without FILE it is noise that comes and goes, so that the network runs at every hop: the most that a
    stream can cost. The first 2 s are not counted. `kws-edge bench` measures the same worst case for several models and
    settings, and compares runs.

    \b
    kws-edge stream-cost
    kws-edge stream-cost living_room.wav --hop 0.05
    """
    from kws_edge.audio.load import read_blocks
    from kws_edge.bench.workload import WARM_UP, restless_noise
    from kws_edge.errors import AudioError
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.spotter import Spotter

    start = time.perf_counter()
    spotter = Spotter(KeywordModel.load(model), hop=hop)
    loaded = time.perf_counter() - start
    chunks = read_blocks(file, hop) if file else restless_noise(hop)
    cost = measure(spotter, islice(chunks, round(seconds / hop)))
    if cost is None:
        raise AudioError(f"{file}: too short; expected more than {WARM_UP:g} s")
    if as_json:
        click.echo(json.dumps({"model": spotter.model.name, "hop": hop, "load": loaded, **asdict(cost)}))
        return
    memory = "unknown" if cost.memory is None else f"{cost.memory:.0f} MB"
    for name, value in (
        ("model", f"{spotter.model.name}, loaded in {loaded * 1e3:.0f} ms"),
        ("hops", f"{cost.hops}, one each {hop * 1e3:g} ms; the network ran in {cost.runs / cost.hops:.0%}"),
        ("per hop", f"p50 {cost.p50:.2f} ms, p95 {cost.p95:.2f} ms, p99 {cost.p99:.2f} ms"),
        ("real time", f"factor {cost.real_time_factor:.4f}"),
        ("CPU", f"{cost.core_share:.2%} of one core"),
        ("memory", f"{memory} resident"),
    ):
        click.echo(f"{name:10} {value}")


def measure(spotter: "Spotter", chunks: "Iterable[F32]") -> Cost | None:
    """Stream chunks of a hop each; None where they end before the warm-up does."""
    import numpy as np

    from kws_edge.audio.level import SAMPLE_RATE
    from kws_edge.bench.machine import resident_memory
    from kws_edge.bench.workload import WARM_UP
    from kws_edge.stream.state import State

    times, runs, cpu, streamed = [], 0, 0.0, 0
    for chunk in chunks:
        cpu_start, start = time.process_time(), time.perf_counter()
        spotter.push(chunk)
        took, cpu_took = time.perf_counter() - start, time.process_time() - cpu_start
        if spotter.time > WARM_UP:
            times.append(took)
            cpu += cpu_took
            streamed += len(chunk)
            runs += spotter.state == State.LISTENING
    if not times:
        return None
    p50, p95, p99 = (float(p) * 1e3 for p in np.percentile(times, (50, 95, 99)))
    seconds = streamed / SAMPLE_RATE
    return Cost(len(times), runs, p50, p95, p99, sum(times) / seconds, cpu / seconds, resident_memory())
