"""The rows of a benchmark as a drawing: where the time of a decision goes."""

from collections.abc import Sequence
from pathlib import Path

from kws_edge import svg
from kws_edge.bench.report import STAGES, BenchRow

_WIDTH, _LEFT, _RIGHT, _TOP = 860, 290, 780, 62
_STEP, _BAR = 34, 18
_COLOURS = ("#8da0cb", "#66c2a5", "#fc8d62", "#e78ac3", "#a6a6a6")


def plot(rows: Sequence[BenchRow], path: Path) -> None:
    """Draw a bar for each row, its mean time divided into stages, with a mark at its 99th percentile.

    Raises
    ------
    SettingError : the file cannot be written.
    """
    bottom = _TOP + _STEP * len(rows)
    longest = max(max(row.p99_ms, row.mean_ms) for row in rows)

    def x(ms: float) -> float:
        return _LEFT + ms / longest * (_RIGHT - _LEFT)

    parts = []
    for i, (stage, colour) in enumerate(zip(STAGES, _COLOURS, strict=True)):
        parts.append(f'<rect x="{_LEFT + 95 * i}" y="20" width="12" height="12" fill="{colour}"/>')
        parts.append(svg.text((_LEFT + 95 * i + 18, 31), stage, "start"))
    for tick in range(6):
        ms = longest * tick / 5
        parts.append(svg.line(x(ms), _TOP - 8, x(ms), bottom, 'stroke="#ddd"'))
        parts.append(svg.text((x(ms), bottom + 18), f"{ms:.3g}"))
    for i, row in enumerate(rows):
        y, left = _TOP + _STEP * i, 0.0
        name = f"{row.model} {row.task}, {row.provider_and_share}, {row.threads} thr., batch {row.batch}"
        parts.append(svg.text((_LEFT - 8, y + 14), name, "end"))
        for stage, colour in zip(STAGES, _COLOURS, strict=True):
            ms = row.breakdown_ms[stage] or 0.0
            parts.append(
                f'<rect x="{x(left):.1f}" y="{y}" width="{x(ms) - _LEFT:.1f}" height="{_BAR}" fill="{colour}"/>'
            )
            left += ms
        mark = x(row.p99_ms)
        parts.append(svg.line(mark, y - 3, mark, y + _BAR + 3, 'stroke="#222" stroke-width="2"'))
    axis = "ms of a decision, mean by stage; the mark is its 99th percentile"
    parts.append(svg.text(((_LEFT + _RIGHT) / 2, bottom + 40), axis))
    svg.write(path, _WIDTH, bottom + 50, parts)
