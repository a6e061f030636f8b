"""The network alone: which providers its nodes run on, and how its time divides between trunk and evidential head.

The head is part of the graph, and its operations are so small that onnxruntime's profiler costs more than they do. So
the graph is cut at its logits, and both are timed in turn with their inputs and outputs bound to the device: what the
whole takes longer than the cut one is the head.
"""

import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from kws_edge.arrays import F32
from kws_edge.errors import ModelError
from kws_edge.model.graph_edit import Graph, float_value
from kws_edge.model.runtime import OUTPUTS, full_name, open_session, short_name, zero_states

LOGITS: Final = "logits"
"""The name that kws-export gives to what goes into the head."""

_DEVICES = {"cuda": "cuda", "tensorrt": "cuda", "dml": "dml"}
"""Providers with a memory of their own, and what onnxruntime calls it."""
_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """The network, its inputs and outputs bound.

    Attributes
    ----------
    whole : seconds of each run of it.
    head : seconds, what the lower quartile of these is above that of the runs without a head: other programs only ever
        add time, and more than the head takes. None where the graph has no tensor `LOGITS` to cut it at.
    device : where inputs and outputs lay.
    """

    whole: tuple[float, ...]
    head: float | None
    device: str


def without_head(data: bytes) -> bytes | None:
    """The model cut at its logits: they are an output in place of the head's, and only what is still needed is left.

    None where no node gives a tensor `LOGITS`. Raises ModelError where the file is damaged.
    """
    graph = Graph.parse(data)
    if not any(LOGITS in node.outputs for node in graph.nodes):
        return None
    graph.outputs = {name: value for name, value in graph.outputs.items() if name not in OUTPUTS}
    graph.outputs[LOGITS] = float_value(LOGITS, "batch", "labels")
    graph.nodes = graph.before(*graph.outputs)
    return graph.assemble("without head")


def time_graph(data: bytes, provider: str, threads: int, features: F32, seconds: float) -> GraphTimes:
    """Time the whole graph, and in turn the one without a head, for so many seconds; the first runs do not count.

    Parameters
    ----------
    data : the ONNX file.
    provider : such as "cuda"; it must run here.
    features : the input `mfcc`, float32 [b, n_mfcc, frames]; other inputs, states, are zeros.
    """
    whole = BoundRun(open_session(data, full_name(provider), threads), provider, features)
    turns: list[tuple[BoundRun, list[float]]] = [(whole, [])]
    if trunk := without_head(data):
        turns.append((BoundRun(open_session(trunk, full_name(provider), threads), provider, features), []))
    times = [taken for _, taken in turns]
    for run, _ in turns * _WARM_UP:
        run()
    end = time.perf_counter() + seconds
    while not times[0] or time.perf_counter() < end:
        for run, taken in turns:
            taken.append(run())
        turns.reverse()  # so that neither always follows the other
    lower = [float(np.quantile(taken, 0.25)) for taken in times]
    head = max(0.0, lower[0] - lower[1]) if trunk else None
    return GraphTimes(tuple(times[0]), head, whole.device)


class BoundRun:
    """A session whose inputs lie on its device, and whose outputs stay there; calling it gives the seconds of a run."""

    def __init__(self, session: ort.InferenceSession, provider: str, features: F32) -> None:
        """Bind the inputs, `feed` of these features, and every output."""
        self._session = session
        for device in dict.fromkeys((_DEVICES.get(provider, "cpu"), "cpu")):
            self._binding, self.device = session.io_binding(), device
            try:
                self._bind(features)
                self()
                return
            except Exception:  # onnxruntime's errors have no class in common
                if device == "cpu":
                    raise

    def _bind(self, features: F32) -> None:
        for name, array in feed(self._session, features).items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, self.device, 0))
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name, self.device, 0)

    def __call__(self) -> float:
        """Run once, to the end of what the device does."""
        start = time.perf_counter()
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        return time.perf_counter() - start

    def outputs(self) -> list[npt.NDArray[Any]]:
        """What the last run gave, in the order of the graph."""
        return self._binding.copy_outputs_to_cpu()


def feed(session: ort.InferenceSession, features: F32) -> dict[str, F32]:
    """All inputs of a graph, given one of them, `mfcc`: the others are states, zeros at the start of a stream."""
    return {"mfcc": features, **zero_states(session, len(features))}


def nodes_by_provider(data: bytes, provider: str, threads: int, features: F32) -> dict[str, int]:
    """Which provider runs how many of the graph's nodes, as onnxruntime's profiler saw it in one run.

    A session may list a provider that none of its nodes ends up on. Nodes are those that are left after onnxruntime's
    optimisation; a provider that compiles a part of the graph makes one node of it.

    Raises ModelError where the profile cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(data, full_name(provider), threads, profile=Path(folder) / "profile")
        session.run(None, feed(session, features))
        text = Path(session.end_profiling()).read_text(encoding="utf-8")
    return count_nodes(text)


def count_nodes(profile: str) -> dict[str, int]:
    """Providers' short names → nodes, from the text of onnxruntime's profile of one run."""
    try:
        events = [event for event in json.loads(profile) if event.get("cat") == "Node"]
        providers = [event["args"]["provider"] for event in events if event["name"].endswith("_kernel_time")]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelError("onnxruntime's profile is not what is expected; which provider runs is unknown") from None
    return dict(Counter(short_name(name) for name in providers))
