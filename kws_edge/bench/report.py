"""The figures of a benchmark: rows, as JSON that can be read again, and their comparison with older ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kws_edge.bench.statistics import Ratio, ratio
from kws_edge.errors import SettingError
from kws_edge.files import read_text

SCHEMA: Final = 1
"""The version of the JSON; a change that an older reader would misread raises it."""

STAGES: Final = ("decode", "features", "model", "head", "decision")


class Case(NamedTuple):
    """What a row is about. Two rows of the same case can be compared.

    model : a name or a path, as it was asked for; in a row, the model's own name.
    task : what is done, a name in `workload.WORKLOADS`.
    """

    model: str
    task: str
    provider: str
    threads: int
    batch: int


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A case, measured. Times are in ms, of a whole decision from bytes or samples to the answer, unless they say.

    Attributes
    ----------
    model, task, provider, threads, batch : the `Case`; the provider is the one that ran.
    nodes : providers → nodes of the graph that ran on each.
    shape : of the network's input.
    decisions, warm_up : how many were timed, and how many came before and were not.
    p50_ms, p95_ms, p99_ms, mean_ms : of all that were timed.
    round_p50_ms, round_yardstick_ms : the median of each round, of the decisions and of the yardstick beside them.
    per_second : clips or hops decided on in a second.
    real_time_factor : time taken over the length of the sound.
    core_share : CPU time of all threads over the length of the sound: 0.02 is 2 % of one core.
    import_ms, load_ms, first_ms : importing the package, loading the model, and the first decision, in that order.
    memory_mb : resident after the timing; None where the system does not tell.
    file, size_kb, sha256 : of the graph that runs: the model's file, or its step form where a stream runs that.
    breakdown_ms : mean time of each of `STAGES`. Model is the network up to its logits, with all that calling it
        takes; head is None, and in model, where the graph has no logits by name.
    network_ms : p50, p95 and p99 of the graph alone, inputs and outputs bound to `io_binding`.
    versions : of what it ran on.
    """

    model: str
    task: str
    provider: str
    threads: int
    batch: int
    nodes: Mapping[str, int]
    shape: tuple[int, ...]
    decisions: int
    warm_up: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    round_p50_ms: tuple[float, ...]
    round_yardstick_ms: tuple[float, ...]
    per_second: float
    real_time_factor: float
    core_share: float
    import_ms: float
    load_ms: float
    first_ms: float
    memory_mb: float | None
    file: str
    size_kb: float
    sha256: str
    breakdown_ms: Mapping[str, float | None]
    network_ms: Mapping[str, float]
    io_binding: str
    versions: Mapping[str, str]

    @property
    def case(self) -> Case:
        """What it is about."""
        return Case(self.model, self.task, self.provider, self.threads, self.batch)

    @property
    def scaled_rounds(self) -> list[float]:
        """The median of each round as a multiple of the yardstick beside it."""
        return [ms / yardstick for ms, yardstick in zip(self.round_p50_ms, self.round_yardstick_ms, strict=True)]

    @property
    def provider_and_share(self) -> str:
        """The provider, and how much of the graph it runs where that is not all."""
        mine, total = self.nodes.get(self.provider, 0), sum(self.nodes.values())
        return self.provider if mine == total else f"{self.provider} ({mine} of {total} nodes)"


class Refusal(NamedTuple):
    """A case that has no row, and why."""

    case: Case
    reason: str

    def __str__(self) -> str:
        """In words."""
        return f"{case_in_words(self.case)}: {self.reason}"


class Change(NamedTuple):
    """A row against the older one of the same case.

    Attributes
    ----------
    time : medians of the decisions.
    scaled : the same in multiples of the yardstick, which leaves out what the machine did to both.
    memory : None where it is unknown.
    same_model : whether the file of the model is the same.
    """

    case: Case
    new_ms: float
    old_ms: float
    time: Ratio
    scaled: Ratio
    memory: float | None
    same_model: bool

    @property
    def verdict(self) -> str:
        """In a word: a change counts where it shows in the times and also beside the yardstick."""
        if max(self.time.high, self.scaled.high) < 1:
            return "faster"
        if min(self.time.low, self.scaled.low) > 1:
            return "slower"
        return "within noise"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            **self.case._asdict(),
            "old_p50_ms": self.old_ms,
            "p50_ms": self.new_ms,
            "ratio": self.time.value,
            "ratio_low": self.time.low,
            "ratio_high": self.time.high,
            "scaled_ratio": self.scaled.value,
            "scaled_ratio_low": self.scaled.low,
            "scaled_ratio_high": self.scaled.high,
            "memory_ratio": self.memory,
            "same_model": self.same_model,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A benchmark.

    Attributes
    ----------
    taken : when, as ISO 8601.
    machine : `machine.Machine.to_dict` at the start, and the load at the end as `load_after`.
    settings : seconds, rounds and hop.
    rows, refused : what was measured, and what was not.
    """

    taken: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    rows: tuple[BenchRow, ...]
    refused: tuple[Refusal, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        refused = [{**refusal.case._asdict(), "reason": refusal.reason} for refusal in self.refused]
        return {"schema": SCHEMA, **asdict(self), "refused": refused}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `to_dict` gave, as JSON.

        Raises
        ------
        SettingError : the file cannot be read, or is not such a report of this `SCHEMA`.
        """
        expected = f"expected a file that kws-edge bench --out wrote, schema {SCHEMA}"
        try:
            values = json.loads(read_text(path))
            if values["schema"] != SCHEMA:
                raise SettingError(f"{path}: schema {values['schema']}; {expected}")
            names = {field.name for field in fields(BenchRow)}
            rows = tuple(BenchRow(**{name: row[name] for name in names}) for row in values["rows"])
            for row in rows:
                rounds = list(zip(row.round_p50_ms, row.round_yardstick_ms, strict=True))
                if not rounds or not all(ms > 0 for pair in rounds for ms in pair):
                    raise ValueError("rounds that took no time")
            refused = tuple(Refusal(Case(*(r[name] for name in Case._fields)), r["reason"]) for r in values["refused"])
            report = cls(values["taken"], values["machine"], values["settings"], rows, refused)
            report.against(report)  # what these two need of it is there
            report.differences(report)
            return report
        except OSError as error:
            raise SettingError(f"{path}: {error.strerror}; {expected}") from None
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(f"{path}: not a benchmark ({type(error).__name__}: {error}); {expected}") from None

    def against(self, old: "BenchReport") -> list[Change]:
        """The rows whose case the older report has too, compared."""
        before = {row.case: row for row in old.rows}
        changes = []
        for row in self.rows:
            if other := before.get(row.case):
                memory = row.memory_mb / other.memory_mb if row.memory_mb and other.memory_mb else None
                changes.append(
                    Change(
                        row.case,
                        row.p50_ms,
                        other.p50_ms,
                        time=ratio(row.round_p50_ms, other.round_p50_ms),
                        scaled=ratio(row.scaled_rounds, other.scaled_rounds),
                        memory=memory,
                        same_model=row.sha256 == other.sha256,
                    )
                )
        return changes

    def differences(self, old: "BenchReport") -> list[str]:
        """What besides the code may explain a ratio: machines, settings or versions that are not the same."""
        pairs = {
            "processor": (old.machine["cpu"], self.machine["cpu"]),
            "usable processors": (len(old.machine["usable"]), len(self.machine["usable"])),
            "quota": (old.machine["quota"], self.machine["quota"]),
            "governor": (list(old.machine["governors"]), list(self.machine["governors"])),
            "hop": (old.settings["hop"], self.settings["hop"]),
            "versions": (versions_in_words(old.rows), versions_in_words(self.rows)),
        }
        return [f"{what}: {a}, now {b}" for what, (a, b) in pairs.items() if a != b]

    @property
    def busy(self) -> float | None:
        """The load, where other work kept more than half of the usable processors busy; None where not, or unknown."""
        load = self.machine["load"]
        return load if load is not None and load > 0.5 * len(self.machine["usable"]) else None


def case_in_words(case: Case) -> str:
    """A case in words."""
    threads = "1 thread" if case.threads == 1 else f"{case.threads} threads"
    return f"{case.model} {case.task} on {case.provider}, {threads}, batch {case.batch}"


def versions_in_words(rows: Sequence[BenchRow]) -> str:
    """What the rows ran on."""
    found = {f"{name} {number}" for row in rows for name, number in row.versions.items()}
    return ", ".join(sorted(found)) or "nothing ran"
