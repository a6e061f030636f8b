"""The detection error trade-off as a drawing: misses against false accepts per hour."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kws_edge import svg

if TYPE_CHECKING:
    from kws_edge.tuning.calibration import Point

_WIDTH, _HEIGHT = 660, 440
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 20, 620, 380
_LEAST: Final = 0.1
"""False accepts per hour; fewer, and none, are drawn here, since 0 has no place on a logarithmic axis."""


def det_plot(curve: Sequence["Point"], chosen: "Point", limit: float, path: Path) -> None:
    """Draw a trade-off curve (`calibration.frontier`), the limit and what was chosen.

    Raises
    ------
    SettingError : the file cannot be written.
    """
    svg.check_name(path)
    decades = max(2, math.ceil(math.log10(max(*(p.false_accepts_per_hour for p in curve), limit, _LEAST) / _LEAST)))
    highest = math.ceil(10 * max(*(p.miss_rate for p in curve), 0.1)) / 10

    def x(per_hour: float) -> float:
        return _LEFT + math.log10(max(per_hour, _LEAST) / _LEAST) / decades * (_RIGHT - _LEFT)

    def y(miss_rate: float) -> float:
        return _BOTTOM - miss_rate / highest * (_BOTTOM - _TOP)

    def text(at: tuple[float, float], content: str, anchor: str = "middle", turn: int = 0) -> str:
        place = f'x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}"'
        turned = f' transform="rotate({turn} {at[0]:.1f} {at[1]:.1f})"' if turn else ""
        return f"<text {place}{turned}>{escape(content)}</text>"

    def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'

    grid, dashed = 'stroke="#ddd"', 'stroke="#c33" stroke-dasharray="5 4"'
    parts = []
    for decade in range(decades + 1):
        value = _LEAST * 10**decade
        parts.append(line(x(value), _TOP, x(value), _BOTTOM, grid))
        parts.append(text((x(value), _BOTTOM + 18), f"{value:g}" if decade else f"≤ {value:g}"))
    for tick in range(6):
        value = highest * tick / 5
        parts.append(line(_LEFT, y(value), _RIGHT, y(value), grid))
        parts.append(text((_LEFT - 8, y(value) + 4), f"{value:.1%}", "end"))
    parts.append(line(x(limit), _TOP, x(limit), _BOTTOM, dashed))
    points = " ".join(f"{x(p.false_accepts_per_hour):.1f},{y(p.miss_rate):.1f}" for p in curve)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#246" stroke-width="2"/>')
    at = x(chosen.false_accepts_per_hour), y(chosen.miss_rate)
    parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5" fill="#c33"/>')
    parts.append(text(((_LEFT + _RIGHT) / 2, _BOTTOM + 45), "false accepts per hour (dashed: the limit)"))
    parts.append(text((18, (_TOP + _BOTTOM) / 2), "words missed", turn=-90))
    svg.write(path, _WIDTH, _HEIGHT, parts)
