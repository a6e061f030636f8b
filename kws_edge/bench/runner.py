"""Run a benchmark: a worker process for each row, in turns.

A round of each row, then the next round of each: what slows the machine for a while then meets all rows alike, and
shows as a difference between the rounds instead of between the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from kws_edge.bench.machine import describe
from kws_edge.bench.process import WorkerProcess
from kws_edge.bench.report import BenchReport, BenchRow, Case, Refusal
from kws_edge.bench.workload import WORKLOADS
from kws_edge.errors import ProviderError, SettingError
from kws_edge.model.runtime import REMOTE, available_providers, full_name
from kws_edge.model.session import MAX_BATCH
from kws_edge.stream.framing import DEFAULT_HOP

ROUNDS: Final = 10

_WARM_UP = 0.2  # s
_GRAPH = 0.25  # s in which the graph alone is timed
_ROW_MB = 200  # of memory that a worker may take
_ALIVE = 8  # workers at once, at most


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: every combination.

    Attributes
    ----------
    models : names and paths, as `KeywordModel.load` takes them.
    tasks : names in `workload.WORKLOADS`.
    providers : execution providers; None for each that onnxruntime has here, a row of one that then does not run being
        left out with its reason.
    threads, batches : of each run; a batch is of clips, and a stream has none.
    seconds : of timing, shared by all rows.
    hop : of streams, s.
    fallback : measure on the CPU where a provider that was asked for does not run, with a warning.

    Raises
    ------
    SettingError : a list is empty, or a number or name is impossible.
    """

    models: Sequence[str]
    tasks: Sequence[str] = tuple(WORKLOADS)
    providers: Sequence[str] | None = None
    threads: Sequence[int] = (1,)
    batches: Sequence[int] = (1,)
    seconds: float = 20.0
    hop: float = DEFAULT_HOP
    fallback: bool = False

    def __post_init__(self) -> None:
        """Check what the workers would otherwise find out one by one."""
        for name in ("models", "tasks", "threads", "batches"):
            if not getattr(self, name):
                raise SettingError(f"no {name}; expected at least one")
        for task in self.tasks:
            if task not in WORKLOADS:
                raise SettingError(f"task {task!r}; expected one of {', '.join(WORKLOADS)}")
        for provider in self.providers or ():
            full_name(provider)
        for threads in self.threads:
            if threads < 1:
                raise SettingError(f"threads={threads}; expected at least 1")
        for batch in self.batches:
            if not 1 <= batch <= MAX_BATCH:
                raise SettingError(f"batch={batch}; expected 1 to {MAX_BATCH}, the most that a model runs at once")
        if not self.seconds > 0:
            raise SettingError(f"seconds={self.seconds}; expected more than 0")

    def cases(self, providers: dict[str, list[str]]) -> list[Case]:
        """The rows, given the providers of each model; those that differ in nothing are one."""
        return list(
            dict.fromkeys(
                Case(model, task, provider, threads, batch if task == "clip" else 1)
                for model in self.models
                for provider in providers[model]
                for task in self.tasks
                for threads in self.threads
                for batch in self.batches
            )
        )


def bench(
    plan: Plan,
    *,
    warn: Callable[[str], None] = lambda message: None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> BenchReport:
    """Measure.

    Parameters
    ----------
    warn : called with a line for each provider and reason where models fall back to the CPU, as the plan allows.
    progress : called now and then with the fraction that is done, 0 to 1.

    Raises
    ------
    ProviderError : a provider that the plan names does not run here, and may not fall back.
    ModelError, SettingError : as `KeywordModel.load` and `Spotter` raise them.
    """
    machine, taken = describe(), datetime.now(UTC).isoformat(timespec="seconds")
    providers, refused = _choose_providers(plan, warn)
    cases = plan.cases(providers)
    alive = _ALIVE if machine.available_mb is None else max(1, min(_ALIVE, int(machine.available_mb / _ROW_MB)))
    rows: dict[Case, BenchRow] = {}
    for first in range(0, len(cases), alive):
        group = cases[first : first + alive]

        def advance(fraction: float, first: int = first, group: Sequence[Case] = group) -> None:
            progress((first + fraction * len(group)) / len(cases))

        done, failed = _measure(group, plan, plan.seconds / len(cases), advance)
        rows |= done
        refused += failed
    if not rows:
        raise ProviderError("; ".join(str(refusal) for refusal in refused))
    return BenchReport(
        taken=taken,
        machine={**machine.to_dict(), "load_after": describe().load},
        settings={"seconds": plan.seconds, "rounds": ROUNDS, "hop": plan.hop},
        rows=tuple(_told_apart(rows)),
        refused=tuple(refused),
    )


def probe(model: str, provider: str) -> dict[str, int]:
    """Load a model on a provider in a process of its own, run it, and see what runs where.

    Returns
    -------
    Providers → nodes of the graph that run on them; the provider asked for has at least one.

    Raises
    ------
    ProviderError : it is not there, does not load, runs nothing of the model, or ends the process.
    ModelError, SettingError : as `KeywordModel.load` raises them.
    """
    with WorkerProcess(Case(model, "clip", provider, 1, 1), DEFAULT_HOP, warm_up=0.0) as worker:
        return dict(worker.finish(0.0)["nodes"])


def _choose_providers(plan: Plan, warn: Callable[[str], None]) -> tuple[dict[str, list[str]], list[Refusal]]:
    """For each model the providers that run it here, by trial, and what is left out."""
    offered = available_providers()
    names = plan.providers or [name for name in reversed(offered) if name not in REMOTE]
    chosen: dict[str, list[str]] = {model: [] for model in plan.models}
    refused = []
    for provider in dict.fromkeys(name.lower() for name in names):
        fallen: dict[str, list[str]] = {}  # problem → models
        for model in plan.models:
            try:
                if provider not in offered:
                    raise ProviderError(f"not in this onnxruntime, which has {', '.join(offered)}")
                if provider != "cpu":
                    probe(model, provider)
                chosen[model].append(provider)
            except ProviderError as error:
                problem = f"execution provider {provider}: {error}"
                if plan.providers is None:
                    refused.append(Refusal(Case(model, "clip", provider, plan.threads[0], plan.batches[0]), str(error)))
                elif not plan.fallback:
                    hint = "kws-edge doctor says what this machine has"
                    raise ProviderError(f"{problem}; expected one that runs, or a fallback: {hint}") from None
                else:
                    fallen.setdefault(problem, []).append(model)
                    chosen[model].append("cpu")
        for problem, models in fallen.items():
            warn(f"{problem}; the CPU is measured instead for {', '.join(models)}, and the rows say so")
    return {model: list(dict.fromkeys(found)) for model, found in chosen.items()}, refused


def _measure(
    cases: Sequence[Case], plan: Plan, seconds: float, progress: Callable[[float], None]
) -> tuple[dict[Case, BenchRow], list[Refusal]]:
    """Measure some rows in turns; `seconds` for each row."""
    rows: dict[Case, BenchRow] = {}
    refused: list[Refusal] = []
    workers: dict[Case, WorkerProcess] = {}
    rounds: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}

    @contextmanager
    def refusing(case: Case) -> Iterator[None]:
        try:
            yield
        except ProviderError as error:
            refused.append(Refusal(case, str(error)))
            workers.pop(case, None)

    with ExitStack() as stack:
        for case in cases:
            with refusing(case):
                workers[case] = stack.enter_context(WorkerProcess(case, plan.hop, _WARM_UP))
        for i in range(ROUNDS):
            order = list(workers)
            for case in order if i % 2 else reversed(order):  # so that no row always follows the same one
                with refusing(case):
                    rounds[case].append(workers[case].round(seconds / ROUNDS))
            progress((i + 1) / (ROUNDS + 1))
        for case in list(workers):
            with refusing(case):
                rows[case] = _row(case, workers[case].started, rounds[case], workers[case].finish(_GRAPH))
    progress(1.0)
    return rows, refused


def _told_apart(rows: dict[Case, BenchRow]) -> Iterator[BenchRow]:
    """The rows; those of several files whose models have the same name are called what was asked for."""
    files: dict[str, set[str]] = {}
    for case, row in rows.items():
        files.setdefault(row.model, set()).add(case.model)
    for case, row in rows.items():
        yield row if len(files[row.model]) == 1 else replace(row, model=case.model)


def _row(case: Case, started: dict[str, Any], rounds: list[dict[str, Any]], finished: dict[str, Any]) -> BenchRow:
    """The figures, from a worker's answers."""
    stages = np.concatenate([one["stages"] for one in rounds])  # [decisions, 4]
    times = stages.sum(axis=1)
    p50, p95, p99 = np.percentile(times, (50, 95, 99)) * 1e3
    decode, features, network, decision = stages.mean(axis=0) * 1e3
    head = None if finished["head"] is None else finished["head"] * 1e3
    sound = len(times) * started["audio"]
    return BenchRow(
        **{**case._asdict(), "model": started["name"]},
        nodes=finished["nodes"],
        shape=tuple(finished["shape"]),
        decisions=len(times),
        warm_up=started["warm_up"],
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        mean_ms=float(times.mean() * 1e3),
        round_p50_ms=tuple(float(np.median(np.sum(one["stages"], axis=1)) * 1e3) for one in rounds),
        round_yardstick_ms=tuple(float(np.median(one["yardsticks"])) * 1e3 for one in rounds),
        per_second=case.batch / float(times.mean()),
        real_time_factor=float(times.sum()) / sound,
        core_share=sum(one["cpu"] for one in rounds) / sound,
        import_ms=started["import"] * 1e3,
        load_ms=started["load"] * 1e3,
        first_ms=started["first"] * 1e3,
        memory_mb=finished["memory"],
        file=finished["file"],
        size_kb=finished["size"] / 1e3,
        sha256=finished["sha256"],
        breakdown_ms={
            "decode": float(decode),
            "features": float(features),
            "model": float(network) - (head or 0.0),
            "head": head,
            "decision": float(decision),
        },
        network_ms={f"p{p}": float(np.percentile(finished["graph"], p)) * 1e3 for p in (50, 95, 99)},
        io_binding=finished["device"],
        versions=finished["versions"],
    )
