"""From rounds to a table: pure arithmetic."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median, and two of the values between which the true median lies with a probability of `coverage` at least."""

    median: float
    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float]) -> MedianInterval:
    """The median of n values, with the narrowest interval of order statistics that covers 95 %, or else all of them.

    Whatever the distribution, the k-th smallest and k-th largest value enclose the true median with a probability of
    1 - 2 * P(B < k), B binomial with n and 1/2. Five values cover 93.75 %, six 96.9 %.

    Source: David and Nagaraja, "Order Statistics", section 7.1.
    """
    ordered, n = sorted(values), len(values)

    def coverage(k: int) -> float:
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2.0**n

    k = max((k for k in range(2, n // 2 + 1) if coverage(k) >= 0.95), default=1)
    return MedianInterval(statistics.median(ordered), ordered[k - 1], ordered[-k], coverage(k))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that is at least as large as this share of them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summarise(rounds: Sequence[Mapping[str, Any]], seconds: float, quiet_seconds: float) -> dict[str, Any]:
    """A row's figures from its rounds: medians over the rounds.

    Parameters
    ----------
    rounds : each with `load_s`, `load_cpu_s`, `peak_mb`, and lists of `wall`, `cpu` (s of each chunk) and the sum
        `quiet_cpu` (s).
    seconds, quiet_seconds : of audio in a round.
    """
    median = statistics.median
    return {
        "cpu_per_second": median(sum(r["cpu"]) / seconds for r in rounds),
        "quiet_cpu_per_second": median(r["quiet_cpu"] / quiet_seconds for r in rounds),
        "hop_cpu_ms": {q: 1e3 * median(percentile(r["cpu"], p) for r in rounds) for q, p in _QUANTILES.items()},
        "hop_wall_ms": {q: 1e3 * median(percentile(r["wall"], p) for r in rounds) for q, p in _QUANTILES.items()},
        "peak_mb": median(r["peak_mb"] for r in rounds),
        "load_s": median(r["load_s"] for r in rounds),
        "load_cpu_s": median(r["load_cpu_s"] for r in rounds),
    }


_QUANTILES = {"p50": 0.5, "p99": 0.99}


def ratios(rows: Mapping[str, Sequence[Mapping[str, Any]]], reference: str) -> dict[str, MedianInterval]:
    """CPU time of each row over that of the reference, round by round, so that both met the machine in one state."""
    base = [sum(r["cpu"]) for r in rows[reference]]
    return {
        name: median_interval([sum(r["cpu"]) / b for r, b in zip(rounds, base, strict=True)])
        for name, rounds in rows.items()
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The table of the results that run.py writes."""
    lines = [
        "| row | words | CPU of one core | ratio | in a quiet room | hop | CPU a hop, p50, p99 | wall p99 "
        "| peak memory | load (CPU) | installed | detects: its word, another |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in results["rows"]:
        size = results["environments"][row["environment"]]
        if "error" in size:
            lines.append(f"| {row['name']} | {row['words']} | {size['error']} |" + " |" * 9)
            continue
        ratio, hop = row["ratio"], row["hop_cpu_ms"]
        cells = (
            row["name"],
            str(row["words"]),
            f"{row['cpu_per_second']:.2%}",
            f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
            f"{row['quiet_cpu_per_second']:.2%}",
            f"{row['hop_ms']:g} ms",
            f"{hop['p50']:.2f}, {hop['p99']:.2f} ms",
            f"{row['hop_wall_ms']['p99']:.2f} ms",
            f"{row['peak_mb']:.0f} MB",
            f"{row['load_s']:.2f} s ({row['load_cpu_s']:.2f})",
            f"{sum(size['installed_mb'].values()):.0f} MB",
            "{word}: {fired} of {count}, {other}: {other_fired} of {count}".format(**row["check"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
