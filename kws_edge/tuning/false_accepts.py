"""What recordings without words show of a limit on false accepts: their hours, counts and intervals, by kind.

A limit such as 1 false accept an hour is a promise about speech, from which nearly all false accepts come. Sounds
without speech have to hold it too, but are counted apart: hours of quiet would make any model look good, and a few
minutes of barking show nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kws_edge.tuning.evaluation import StreamReport, seconds_to_show

SPEECH: Final = "speech"
SOUNDS: Final = "sounds"
ANY: Final = "recordings"


@dataclass(frozen=True, slots=True)
class FalseAccepts:
    """False accepts on recordings in which none of the words is said.

    Attributes
    ----------
    reports : name of the recordings → what was counted on them.
    sounds : names of those without speech; None where a file does not say which they are.
    """

    reports: Mapping[str, StreamReport]
    sounds: Collection[str] | None = ()

    @classmethod
    def of(cls, calibration: Any) -> "FalseAccepts":
        """Read them from the calibration in a model's file; none where it does not say them."""
        reports: dict[str, StreamReport] = {}
        kinds: dict[str, object] = {}
        try:
            for name, said in calibration["negatives"].items():
                seconds = float(said["seconds"])
                count = round(calibration["false_accepts_per_hour"][name]["value"] * seconds / 3600)
                if not (seconds > 0 and count >= 0):
                    raise ValueError
                reports[name] = StreamReport(seconds, false_accepts=count)
                kinds[name] = said.get("kind")
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError):
            return cls({})
        known = all(kind in (SPEECH, SOUNDS) for kind in kinds.values())
        return cls(reports, [name for name, kind in kinds.items() if kind == SOUNDS] if known else None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as `of` reads them."""
        return {
            "negatives": {
                name: {"seconds": report.seconds, "kind": self._kind_of(name)} for name, report in self.reports.items()
            },
            "false_accepts_per_hour": {n: r.false_accepts_per_hour._asdict() for n, r in self.reports.items()},
        }

    def by_kind(self) -> dict[str, dict[str, StreamReport]]:
        """Kind → the reports of it; what a limit is about comes first."""
        found: dict[str, dict[str, StreamReport]] = {}
        for kind in (ANY, SPEECH, SOUNDS):
            if reports := {name: report for name, report in self.reports.items() if self._kind_of(name) == kind}:
                found[kind] = reports
        return found

    def shows(self, limit: float) -> bool:
        """Whether, at 95 %, there are no more false accepts per hour than the limit on what it is about."""
        return any(_sum(reports).false_accepts_per_hour.high <= limit for reports in [*self.by_kind().values()][:1])

    def verdict(self, limit: float) -> str:
        """Whether a limit is shown and by what, in a line; empty without recordings."""
        for kind, reports in self.by_kind().items():
            total = _sum(reports)
            told = f"{total.false_accepts} false accept{'' if total.false_accepts == 1 else 's'} in"
            told = f"{told} {duration(total.seconds)} of {kind}, {interval(total)}"
            if self.shows(limit):
                return f"shown: {told}"
            needed = seconds_to_show(limit)
            if total.seconds >= needed:
                return f"not shown: {told}"
            return f"not shown: {told}; {_takes(needed)}"
        return ""

    def lines(self) -> list[str]:
        """The recordings, a line each, with a sum for each kind that has several."""
        rows: list[tuple[str, StreamReport]] = []
        for kind, reports in self.by_kind().items():
            if len(reports) > 1:
                rows.append((f"all {kind}", _sum(reports)))
            rows += [(name if kind == ANY else f"{kind}, {name}", report) for name, report in reports.items()]
        width = max((len(name) for name, _ in rows), default=0)
        return [f"{name:{width}}  {r.false_accepts:3} in {duration(r.seconds):>12}, {interval(r)}" for name, r in rows]

    def _kind_of(self, name: str) -> str:
        if self.sounds is None:
            return ANY
        return SOUNDS if name in self.sounds else SPEECH


def duration(seconds: float) -> str:
    """Minutes, or hours from two on."""
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _sum(reports: Mapping[str, StreamReport]) -> StreamReport:
    return sum(reports.values(), StreamReport(0.0))


def interval(report: StreamReport) -> str:
    """False accepts per hour with their 95 % interval."""
    rate = report.false_accepts_per_hour
    return f"{rate.value:.2f} an hour (95 %: {rate.low:.2f} to {rate.high:.2f})"


def _takes(seconds: float) -> str:
    if seconds == float("inf"):
        return "no recording is long enough for that"
    return f"that takes {duration(seconds)} without one"
