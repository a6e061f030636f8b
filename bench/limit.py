"""How far a decision is from what one core could do, and where the rest of its time goes.

    python bench/limit.py [--model stream] [--model other.onnx] [--hop 0.1] [--dim batch=8] [--rounds 9]

Multiply-adds and bytes are counted in the graph, by shape inference. Free dimensions are 1 (the batch) unless --dim
says otherwise; the step form of a model for streams is measured too, for the new frames of a hop. The core's peak is
measured in turn with the model, in the same rounds: a product of two matrices of 768 x 768 in float32 by numpy's BLAS
and by ONNX Runtime, of which the faster counts, and a copy of 32 MB (memory) and of 128 KB (cache). All of it is CPU
time on one core, a median over the rounds.

The limit is the larger of two times: the multiply-adds at the peak, and the weights, inputs and outputs at the speed of
a copy from cache, where they fit. "Unfused" would be every tensor between two operators written and read again.

Then the time by kind of operator, from ONNX Runtime's profiler, each kind with its own share of the peak; and a hop of
the Spotter by module, from Python's profiler, scaled to the time that a hop takes without it. Results go to
bench/results/limit.json, the tables to standard output.
"""

import argparse
import cProfile
import json
import math
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's BLAS reads it when it is loaded

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, shape_inference

from kws_edge import KeywordModel, Spotter
from kws_edge.bench.count import CONVOLUTIONS, multiply_adds
from kws_edge.bench.machine import describe, versions
from kws_edge.bench.workload import WARM_UP, restless_noise
from kws_edge.model.runtime import CPU, open_session
from kws_edge.stream.incremental import has_steps, step_file

RESULTS = Path(__file__).parent / "results" / "limit.json"
GEMM = 768
SECONDS = 0.05  # of CPU time, at least, for each measurement of a round
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What one run of a graph does.

    Attributes
    ----------
    nodes : the convolutions and matrix products by the names of their nodes: kind and multiply-adds.
    weight_bytes : constants, each read once.
    edge_bytes : inputs and outputs of the graph, states among them.
    inner_bytes : every tensor between two operators, written once and read by each that takes it.
    """

    nodes: dict[str, tuple[str, int]]
    weight_bytes: int
    edge_bytes: int
    inner_bytes: int

    @property
    def total_macs(self) -> int:
        return sum(macs for _, macs in self.nodes.values())


def kind(operator: str, inputs: Sequence[Shape]) -> str:
    """Say what kind of operator it is; a convolution, by the shape of its weights."""
    if operator not in CONVOLUTIONS:
        return operator
    _, channels, *kernel = inputs[CONVOLUTIONS[operator]]
    if math.prod(kernel) == 1:
        return "pointwise convolution"
    return "depthwise convolution" if channels == 1 else "convolution"


def count(model: onnx.ModelProto, dims: Mapping[str, int]) -> ModelWork:
    """Count a graph's work; free dimensions are those given by name, or else 1."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = dims.get(dim.dim_param, 1)
    graph = shape_inference.infer_shapes(fixed, check_type=True, strict_mode=True, data_prop=True).graph
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in _values(graph)}
    sizes = {v.name: _bytes(v.type.tensor_type.elem_type, shapes[v.name]) for v in _values(graph)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes |= {name: tuple(tensor.dims) for name, tensor in constants.items()}
    edges = {v.name for v in (*graph.input, *graph.output)} - constants.keys()
    nodes: dict[str, tuple[str, int]] = {}
    inner = 0
    for node in graph.node:
        taken = [shapes[name] for name in node.input if name]
        if macs := multiply_adds(node.op_type, taken, shapes[node.output[0]]):
            nodes[node.name or node.output[0]] = kind(node.op_type, taken), macs
        between = [name for name in (*node.input, *node.output) if name not in edges and name not in constants]
        inner += sum(sizes[name] for name in between if name)
    weight_bytes = sum(numpy_helper.to_array(tensor).nbytes for tensor in constants.values())
    return ModelWork(nodes, weight_bytes, sum(sizes[name] for name in edges), inner)


def _values(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [*graph.input, *graph.value_info, *graph.output]


def _bytes(element: int, shape: Shape) -> int:
    return math.prod(shape) * helper.tensor_dtype_to_np_dtype(element).itemsize


def cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of all threads for one call, the mean of as many as fill `SECONDS`."""
    calls, start = 0, time.process_time()
    while (taken := time.process_time() - start) < SECONDS:
        work()
        calls += 1
    return taken / calls


def gemm_runs() -> dict[str, Callable[[], object]]:
    """Two implementations of the same product of `GEMM`³ multiply-adds."""
    a, b = np.random.default_rng(1).standard_normal((2, GEMM, GEMM), np.float32)
    out = np.empty_like(a)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "gemm",
        [info("a", TensorProto.FLOAT, a.shape)],
        [info("c", TensorProto.FLOAT, a.shape)],
        [numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = open_session(model.SerializeToString(), CPU, 1)
    return {"numpy": lambda: np.matmul(a, b, out=out), "onnxruntime": lambda: session.run(None, {"a": a})}


def copy_run(size: int) -> Callable[[], object]:
    """A copy of so many bytes."""
    source, target = np.ones((2, size // 4), np.float32)
    return lambda: np.copyto(target, source)


def inputs(session: ort.InferenceSession, dims: Mapping[str, int]) -> dict[str, npt.NDArray[Any]]:
    """Something for every input: noise, or zeros where it is no floating point."""
    rng = np.random.default_rng(1)
    feeds = {}
    for node in session.get_inputs():
        shape = [d if isinstance(d, int) else dims.get(d, 1) for d in node.shape]
        noise = rng.standard_normal(shape)
        feeds[node.name] = noise.astype(np.float32) if "float" in node.type else np.zeros(shape, _dtype(node.type))
    return feeds


def _dtype(name: str) -> npt.DTypeLike:
    return np.dtype(name.removeprefix("tensor(").removesuffix(")"))


@dataclass(frozen=True, slots=True)
class Operators:
    """Time of one kind of operator in a run: ms, how many, multiply-adds."""

    ms: float
    number: float
    macs: int


def profile_operators(
    data: bytes, feeds: dict[str, npt.NDArray[Any]], nodes: Mapping[str, tuple[str, int]], runs: int = 200
) -> dict[str, Operators]:
    """Time by kind of operator in one run, as ONNX Runtime's profiler sees it, most first.

    The profiler's own cost is in it, some µs for each operator.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(data, CPU, 1, profile=Path(folder) / "profile")
        for _ in range(runs):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return by_kind(events, nodes, runs)


def by_kind(events: list[dict[str, Any]], nodes: Mapping[str, tuple[str, int]], runs: int) -> dict[str, Operators]:
    """Sum up a profile of so many runs by kind of operator, each operator at its median over the runs.

    ONNX Runtime hides the weights that it has packed for itself. What is one of `nodes` of the graph, by the beginning
    of its name, is therefore taken from there.
    """
    times: dict[str, list[float]] = {}
    described: dict[str, tuple[str, int]] = {}
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        arguments = event["args"]
        operator = arguments["op_name"]
        taken, given = (
            [tuple(next(iter(typed.values()))) for typed in arguments[f"{side}_type_shape"]]
            for side in ("input", "output")
        )
        packed = operator in CONVOLUTIONS and len(taken[CONVOLUTIONS[operator]]) < 3
        known = max((name for name in nodes if packed and event["name"].startswith(f"{name}_")), key=len, default=None)
        described[event["name"]] = (
            nodes[known] if known else (kind(operator, taken), multiply_adds(operator, taken, given[0]))
        )
        times.setdefault(event["name"], []).append(event["dur"])
    result: dict[str, Operators] = {}
    for name, durations in times.items():
        what, macs = described[name]
        old = result.get(what, Operators(0.0, 0.0, 0))
        number = len(durations) / runs
        result[what] = Operators(
            old.ms + statistics.median(durations) * number / 1e3, old.number + number, old.macs + macs
        )
    return dict(sorted(result.items(), key=lambda item: -item[1].ms))


def hop_by_module(model: KeywordModel, hop: float) -> tuple[float, dict[str, float]]:
    """CPU ms of a hop, and the share of each module of kws_edge in it, with all that it calls outside of kws_edge."""
    chunks, warm = list(islice(restless_noise(hop), round(12 / hop))), round(WARM_UP / hop)
    spotter = Spotter(model, hop=hop)
    for chunk in chunks[:warm]:
        spotter.push(chunk)
    start = time.process_time()
    for chunk in chunks[warm:]:
        spotter.push(chunk)
    ms = (time.process_time() - start) * 1e3 / len(chunks[warm:])
    profiler = cProfile.Profile(time.process_time)
    for chunk in chunks[warm:]:
        profiler.runcall(spotter.push, chunk)
    return ms, shares_by_module(pstats.Stats(profiler).stats)  # type: ignore[attr-defined]


Function = tuple[str, int, str]
Stats = Mapping[Function, tuple[int, int, float, float, Mapping[Function, tuple[int, int, float, float]]]]


def shares_by_module(stats: Stats) -> dict[str, float]:
    """Shares of the time of a Python profile, by module of kws_edge; what it calls outside counts to the caller.

    Source: the format of pstats.Stats.stats, function → (calls, primitive calls, own time, time with callees, callers
    → the same four).
    """
    owners: dict[Function, dict[str, float]] = {}

    def owner(function: Function, seen: frozenset[Function]) -> dict[str, float]:
        """How the time of a function divides between the modules that had it called; the parts sum to 1."""
        if function in owners:
            return owners[function]
        path = Path(function[0])
        if "kws_edge" in path.parts:
            return {path.stem: 1.0}
        callers = {c: times[3] for c, times in stats[function][4].items() if c in stats and c not in seen}
        total = sum(callers.values())
        if not total:
            return {"outside": 1.0}
        parts: dict[str, float] = {}
        for caller, weight in callers.items():
            for module, part in owner(caller, seen | {function}).items():
                parts[module] = parts.get(module, 0.0) + weight / total * part
        if not seen:
            owners[function] = parts
        return parts

    times: dict[str, float] = {}
    for function, (_, _, own, _, _) in stats.items():
        for module, part in owner(function, frozenset()).items():
            times[module] = times.get(module, 0.0) + own * part
    whole = sum(times.values())
    return {module: taken / whole for module, taken in sorted(times.items(), key=lambda part: -part[1])}


def measure(path: Path, name: str, dims: Mapping[str, int], rounds: int) -> dict[str, Any]:
    """Everything about one graph."""
    data = path.read_bytes()
    work = count(onnx.load_from_string(data), dims)
    session = open_session(data, CPU, 1)
    feeds = inputs(session, dims)
    runs: dict[str, Callable[[], object]] = {
        **gemm_runs(),
        "memory": copy_run(1 << 25),
        "cache": copy_run(1 << 17),
        "model": lambda: session.run(None, feeds),
    }
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            times[key].append(cpu_time(run))
    peaks = [GEMM**3 / min(n, o) for n, o in zip(times["numpy"], times["onnxruntime"], strict=True)]
    shares = [work.total_macs / t / peak for t, peak in zip(times["model"], peaks, strict=True)]
    return {
        "model": name,
        "work": {**asdict(work), "macs": work.total_macs},
        "dims": dict(dims),
        "run_ms": statistics.median(times["model"]) * 1e3,
        "peak_gmacs": statistics.median(peaks) / 1e9,
        "gemm_gmacs": {key: GEMM**3 / statistics.median(times[key]) / 1e9 for key in ("numpy", "onnxruntime")},
        "copy_gbs": {
            "memory": (1 << 25) / statistics.median(times["memory"]) / 1e9,
            "cache": (1 << 17) / statistics.median(times["cache"]) / 1e9,
        },
        "share": {"median": statistics.median(shares), "low": min(shares), "high": max(shares)},
        "operators": {key: asdict(part) for key, part in profile_operators(data, feeds, work.nodes).items()},
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """The tables."""
    lines = [
        "| model | multiply-adds | weights | in, out, states | unfused | run, CPU | peak | arithmetic at peak "
        "| bytes at copy speed | share of the peak |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        work, share = r["work"], r["share"]
        macs = work["macs"]
        edge = work["weight_bytes"] + work["edge_bytes"]
        lines.append(
            f"| {r['model']} | {macs / 1e6:.2f} M | {work['weight_bytes'] / 1e3:.0f} kB "
            f"| {work['edge_bytes'] / 1e3:.0f} kB | {work['inner_bytes'] / 1e3:.0f} kB "
            f"| {r['run_ms']:.3f} ms | {r['peak_gmacs']:.1f} G/s "
            f"| {macs / r['peak_gmacs'] / 1e6:.3f} ms | {edge / r['copy_gbs']['cache'] / 1e6:.3f} ms "
            f"| {share['median']:.1%} ({share['low']:.1%} to {share['high']:.1%}) |"
        )
    for r in results:
        whole = sum(part["ms"] for part in r["operators"].values())
        lines += ["", f"| {r['model']}: operators | number | time | of the run | multiply-adds | share of the peak |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        rest = [part for part in r["operators"].values() if not part["macs"]]
        for name, part in r["operators"].items():
            if part["macs"]:
                lines.append(
                    f"| {name} | {part['number']:.0f} | {part['ms'] * 1e3:.0f} µs | {part['ms'] / whole:.0%} "
                    f"| {part['macs'] / 1e6:.3f} M | {part['macs'] / part['ms'] / r['peak_gmacs'] / 1e6:.0%} |"
                )
        number, ms = (sum(part[key] for part in rest) for key in ("number", "ms"))
        lines.append(f"| all others | {number:.0f} | {ms * 1e3:.0f} µs | {ms / whole:.0%} | | |")
        if hop := r.get("hop"):
            lines += [
                "",
                f"| {r['model']}: a hop of {hop['seconds']:g} s | {hop['ms']:.2f} ms | of it |",
                "| --- | --- | --- |",
            ]
            for module, share in hop["modules"].items():
                if share >= 0.005:
                    lines.append(f"| {module} | {share * hop['ms']:.3f} ms | {share:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", metavar="NAME|PATH", help="default: stream")
    parser.add_argument("--hop", type=float, default=0.1, help="of the Spotter, s")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="a free dimension of the graph")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    dims = {name: int(size) for name, _, size in (text.partition("=") for text in options.dim)}
    results = []
    for name in options.model or ["stream"]:
        model = KeywordModel.load(name)
        ms, modules = hop_by_module(model, options.hop)
        hop = {"seconds": options.hop, "ms": ms, "modules": modules}
        results.append({**measure(model.path, name, dims, options.rounds), "hop": hop})
        if has_steps(model):
            front_end = model.metadata.front_end
            n = round(options.hop * front_end.sample_rate / front_end.hop)
            step = step_file(model), f"{name}, step of {n}", {"new_frames": n, **dims}
            results.append(measure(*step, options.rounds))
    saved = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe().to_dict(),
        "versions": versions(),
        "models": results,
    }
    options.output.write_text(json.dumps(saved, indent=1) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
