"""Write SVG drawings without a plotting library."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.files import write_named


def check_name(path: Path) -> None:
    """Raise SettingError where the file is not to be an SVG, or there is no folder for it."""
    if path.suffix.lower() != ".svg":
        raise SettingError(f"cannot draw {path}; expected a name that ends in .svg")
    if not path.parent.is_dir():
        raise SettingError(f"cannot draw {path}; expected a folder that is there")


def write(path: Path, width: int, height: int, parts: Sequence[str]) -> None:
    """Write elements, in this order, on a white page of so many units.

    Raises
    ------
    SettingError : the file cannot be written.
    """
    body = "\n".join([f'<rect width="{width}" height="{height}" fill="white"/>', *parts])
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" fill="#222">\n{body}\n</svg>\n'
    )
    write_named(path, svg)


def text(at: tuple[float, float], content: str, anchor: str = "middle", turn: int = 0) -> str:
    """A text at (x, y), which is its `anchor`: start, middle or end; turned by so many degrees."""
    place = f'x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}"'
    turned = f' transform="rotate({turn} {at[0]:.1f} {at[1]:.1f})"' if turn else ""
    return f"<text {place}{turned}>{escape(content)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A line from (x1, y1) to (x2, y2); `style` are further attributes, such as stroke="#ddd"."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'
