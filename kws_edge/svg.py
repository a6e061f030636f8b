"""Write SVG drawings without a plotting library."""

from collections.abc import Sequence
from pathlib import Path

from kws_edge.errors import SettingError
from kws_edge.files import replace_file


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
    try:
        replace_file(path, svg)
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None
