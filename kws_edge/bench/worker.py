"""The worker process that measures one row, so that rows share neither memory nor crashes.

The runner sends a JSON object a line on standard input and gets one back on standard output: first what to run, then
a number of seconds for each round, then "finish". An error comes back as its class and message.
"""

import hashlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from kws_edge.bench.workload import Stages

_MIN_STEPS = 5
_YARDSTICKS = 6


def main() -> None:
    """Serve the runner until it closes its end."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    row: _Row | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if row is None:
                row = _Row(**request)
                answer = row.started
            elif "seconds" in request:
                answer = row.round(request["seconds"])
            else:
                answer = row.finish(request["finish"])
        except Exception as error:
            from kws_edge.errors import KwsEdgeError
            from kws_edge.text import collapsed

            # A typed message stands on its own; any other needs its class to be understood.
            message = str(error) if isinstance(error, KwsEdgeError) else f"{type(error).__name__}: {error}"
            answer = {"error": type(error).__name__, "message": collapsed(message)}
        _send(answers, answer)


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


class _Row:
    """A model, loaded and warm."""

    def __init__(
        self, *, model: str | None, task: str, provider: str, threads: int, batch: int, hop: float, warm_up: float
    ) -> None:
        start = time.perf_counter()
        from kws_edge.bench.workload import WORKLOADS, load_timed
        from kws_edge.bench.yardstick import make_yardstick

        imported = time.perf_counter()
        self._model = load_timed(model, provider, threads)
        loaded = time.perf_counter()
        self._threads, self._yardstick = threads, make_yardstick()
        self._workload = WORKLOADS[task](self._model, batch, hop)
        steps, first = 0, 0.0
        while not first:  # a stream begins with hops that the network is not asked about
            stages, steps = self._workload.step(), steps + 1
            first = sum(stages) if stages.network else 0.0
        end = time.perf_counter() + warm_up
        while not self._workload.is_warm() or steps < _MIN_STEPS or time.perf_counter() < end:
            self._workload.step()
            steps += 1
        self.started = {
            "import": imported - start,
            "load": loaded - imported,
            "first": first,
            "warm_up": steps,
            "name": self._model.name,
            "provider": self._model.provider,
            "audio": self._workload.audio,
        }

    def round(self, seconds: float) -> dict[str, Any]:
        """Steps for so long: the stages of each, the CPU time of all together, and yardsticks before and after."""
        stages: list[Stages] = []
        yardsticks = [self._yardstick() for _ in range(_YARDSTICKS)]
        cpu, start = time.process_time(), time.perf_counter()
        while len(stages) < _MIN_STEPS or time.perf_counter() < start + seconds:
            stages.append(self._workload.step())
        cpu = time.process_time() - cpu
        yardsticks += [self._yardstick() for _ in range(_YARDSTICKS)]
        return {"stages": stages, "cpu": cpu, "yardsticks": yardsticks}

    def finish(self, seconds: float) -> dict[str, Any]:
        """What comes after the timing: memory first, since the sessions that the rest opens take more."""
        import numpy as np

        from kws_edge.bench.graph import nodes_by_provider, time_graph
        from kws_edge.bench.machine import resident_memory, versions

        memory = resident_memory()
        file, shape = self._workload.file, self._workload.shape
        data, provider = file.read_bytes(), self._model.provider
        features = np.random.default_rng(1).standard_normal(shape, np.float32)
        times = time_graph(data, provider, self._threads, features, seconds)
        return {
            "memory": memory,
            "file": file.name,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "nodes": nodes_by_provider(data, provider, self._threads, features),
            "shape": shape,
            "graph": times.whole,
            "head": times.head,
            "device": times.device,
            "versions": versions(),
        }


if __name__ == "__main__":
    main()
