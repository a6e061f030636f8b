"""The detection error trade-off as a drawing: misses against false accepts per hour."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kws_edge import svg

if TYPE_CHECKING:
    from kws_edge.tuning.evaluation import StreamReport
    from kws_edge.tuning.points import Point

_WIDTH, _HEIGHT = 660, 440
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 20, 620, 380
_LEAST: Final = 0.1
"""False accepts per hour; fewer, and none, are drawn here, since 0 has no place on a logarithmic axis."""
_COLOURS: Final = ("#246", "#c33", "#2a7", "#b70", "#74a", "#088", "#555", "#a36")


def curves_plot(curves: Mapping[str, Sequence[tuple[float, "StreamReport"]]], path: Path) -> None:
    """Draw several trade-off curves: what is missed in each of some streams with words, over the same rates.

    Parameters
    ----------
    curves : stream → (false accepts per hour, what it then gives), rates rising.

    Raises
    ------
    SettingError : the file cannot be written, or has another kind of name.
    """
    svg.check_name(path)
    most = max((rate for points in curves.values() for rate, _ in points), default=1.0)
    frame = _Frame(max(2, math.ceil(math.log10(max(most, _LEAST) / _LEAST))), 1.0)
    parts = frame.grid()
    for i, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        at = " ".join(f"{frame.x(rate):.1f},{frame.y(1 - r.hits / r.words):.1f}" for rate, r in points if r.words)
        parts.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(svg.line(_RIGHT - 250, _TOP + 14 + 18 * i, _RIGHT - 225, _TOP + 14 + 18 * i, f'stroke="{colour}"'))
        parts.append(svg.text((_RIGHT - 218, _TOP + 18 + 18 * i), name, "start"))
    parts.append(svg.text(((_LEFT + _RIGHT) / 2, _BOTTOM + 45), "false accepts per hour"))
    svg.write(path, _WIDTH, _HEIGHT, parts)


class _Frame:
    """The axes: false accepts per hour on so many decades, and misses up to the highest."""

    def __init__(self, decades: int, highest: float) -> None:
        self._decades, self._highest = decades, highest

    def x(self, per_hour: float) -> float:
        return _LEFT + math.log10(max(per_hour, _LEAST) / _LEAST) / self._decades * (_RIGHT - _LEFT)

    def y(self, miss_rate: float) -> float:
        return _BOTTOM - miss_rate / self._highest * (_BOTTOM - _TOP)

    def grid(self) -> list[str]:
        parts, grid = [], 'stroke="#ddd"'
        for decade in range(self._decades + 1):
            value = _LEAST * 10**decade
            parts.append(svg.line(self.x(value), _TOP, self.x(value), _BOTTOM, grid))
            parts.append(svg.text((self.x(value), _BOTTOM + 18), f"{value:g}" if decade else f"≤ {value:g}"))
        for tick in range(6):
            value = self._highest * tick / 5
            parts.append(svg.line(_LEFT, self.y(value), _RIGHT, self.y(value), grid))
            parts.append(svg.text((_LEFT - 8, self.y(value) + 4), f"{value:.1%}", "end"))
        parts.append(svg.text((18, (_TOP + _BOTTOM) / 2), "words missed", turn=-90))
        return parts


def det_plot(curve: Sequence["Point"], chosen: "Point", limit: float, path: Path) -> None:
    """Draw a trade-off curve (`choice.frontier`), the limit and what was chosen.

    Raises
    ------
    SettingError : the file cannot be written.
    """
    svg.check_name(path)
    decades = max(2, math.ceil(math.log10(max(*(p.false_accepts_per_hour for p in curve), limit, _LEAST) / _LEAST)))
    highest = math.ceil(10 * max(*(p.miss_rate for p in curve), 0.1)) / 10

    frame = _Frame(decades, highest)
    x, y, parts = frame.x, frame.y, frame.grid()
    dashed = 'stroke="#c33" stroke-dasharray="5 4"'
    parts.append(svg.line(x(limit), _TOP, x(limit), _BOTTOM, dashed))
    points = " ".join(f"{x(p.false_accepts_per_hour):.1f},{y(p.miss_rate):.1f}" for p in curve)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#246" stroke-width="2"/>')
    at = x(chosen.false_accepts_per_hour), y(chosen.miss_rate)
    parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5" fill="#c33"/>')
    parts.append(svg.text(((_LEFT + _RIGHT) / 2, _BOTTOM + 45), "false accepts per hour (dashed: the limit)"))
    svg.write(path, _WIDTH, _HEIGHT, parts)
