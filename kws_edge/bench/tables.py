"""A benchmark for people: tables, one line about a machine or a model, Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kws_edge.bench.report import STAGES, BenchReport, BenchRow, versions_in_words


def markdown(report: BenchReport) -> str:
    """The machine, the tables of the rows, and what has no row."""
    lines = [f"{report.taken}: {machine_in_words(report.machine)}; {versions_in_words(report.rows)}", ""]
    for table in tables(report.rows):
        lines += _markdown(table)
    lines += [f"- no row: {refusal}" for refusal in report.refused]
    return "\n".join(lines).rstrip() + "\n"


class BenchTable(NamedTuple):
    """Rows for people: a title, a heading, and cells in words. The first `NAMES` columns say which row it is."""

    title: str
    heading: list[str]
    cells: list[list[str]]


NAMES: Final = 5


def tables(rows: Sequence[BenchRow]) -> list[BenchTable]:
    """How long a decision takes; where that goes; and what starting and holding a model takes."""
    names = ["model", "task", "provider", "threads", "batch"]
    latency, breakdown, footprint = [], [], []
    for row in rows:
        name = [row.model, row.task, row.provider_and_share, str(row.threads), str(row.batch)]
        times = (row.p50_ms, row.p95_ms, row.p99_ms, row.mean_ms)
        speed = [f"{row.per_second:.0f}", f"{row.real_time_factor:.4f}", f"{row.core_share:.2%}"]
        latency.append([*name, *(f"{ms:.2f}" for ms in times), *speed])
        stages = (row.breakdown_ms[stage] for stage in STAGES)
        breakdown.append([*name, *("-" if ms is None else f"{ms:.3f}" for ms in stages)])
        start = (row.import_ms, row.load_ms, row.first_ms)
        memory = "-" if row.memory_mb is None else f"{row.memory_mb:.0f}"
        footprint.append([*name, *(f"{ms:.0f}" for ms in start), memory, f"{row.size_kb:.0f}"])
    return [
        BenchTable(
            "A decision, front end included, ms",
            [*names, "p50", "p95", "p99", "mean", "per s", "RTF", "core"],
            latency,
        ),
        BenchTable("Where its time goes, mean, ms", [*names, *STAGES], breakdown),
        BenchTable("Before it, ms; and size", [*names, "import", "load", "first", "memory MB", "file kB"], footprint),
    ]


def machine_in_words(machine: Mapping[str, Any]) -> str:
    """One line about a machine, from `BenchReport.machine`."""
    parts = [str(machine["cpu"]), f"{len(machine['usable'])} of {machine['cpus']} processors usable"]
    if machine["quota"] is not None:
        parts.append(f"quota {machine['quota']:g}")
    parts.append(f"governor {', '.join(machine['governors']) or 'unknown'}")
    if machine["mhz"] is not None:
        parts.append(f"{machine['mhz']:.0f} MHz")
    if machine["load"] is not None:
        parts.append(f"load {machine['load']:.1f}")
    return ", ".join(parts)


def verdicts(rows: Sequence[BenchRow]) -> list[str]:
    """A line about each model: its fastest row for a single clip, and its row with the cheapest stream."""
    lines = []
    for model in dict.fromkeys(row.model for row in rows):
        mine = [row for row in rows if row.model == model]
        clips = [row for row in mine if row.task == "clip" and row.batch == 1]
        streams = [row for row in mine if row.task == "stream"]
        parts = []
        if clips:
            best = min(clips, key=lambda row: row.p50_ms)
            parts.append(
                f"a clip of 1 s takes {best.p50_ms:.1f} ms, 1/{1e3 / best.p50_ms:.0f} of real time, on {_on(best)}"
            )
        if streams:
            best = min(streams, key=lambda row: row.core_share)
            parts.append(f"a live stream {best.core_share:.1%} of one core, on {_on(best)}")
        lines.append(f"{model}: {'; '.join(parts) or f'{mine[0].per_second:.0f} clips a second, on {_on(mine[0])}'}")
    return lines


def _on(row: BenchRow) -> str:
    return f"{row.provider_and_share} with {row.threads} thread{'' if row.threads == 1 else 's'}"


def _markdown(table: BenchTable) -> list[str]:
    rules = ["---" if i < 3 else "---:" for i in range(len(table.heading))]
    lines = [f"| {' | '.join(line)} |" for line in (table.heading, rules, *table.cells)]
    return [f"**{table.title}**", "", *lines, ""]
