"""The drawing of the packages: which there are, what each does and which may import which, read from the code.

    python docs/generate/rooms.py rooms.svg

The rows are the layers that `lint-imports` holds (pyproject.toml); a package may import those in rows below its own.
The text in a box is the first sentence of that package's docstring.
"""

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path

WIDTH, GAP, ROW, MARGIN = 900, 10, 74, 14
DEVICE, WORKSTATION = ("#e0f2f1", "#00796b"), ("#ede7f6", "#5e35b1")
FONT = "font-family='system-ui, sans-serif'"


def sentence(path: Path) -> str:
    """The first sentence of a module's or package's docstring, without markup."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = re.split(r"(?<=[.?])\s", " ".join(text.split()), maxsplit=1)[0]
    return first.replace("`", "").rstrip(".")


def layers(root: Path) -> list[list[str]]:
    """The packages of kws_edge, row by row from the top, as the import contract has them."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (rows,) = (c["layers"] for c in contracts if c["type"] == "layers" and c.get("containers") == ["kws_edge"])
    return [re.findall(r"[a-z_]+", row) for row in rows]


def box(x: float, y: float, width: float, name: str, text: str, colours: tuple[str, str]) -> list[str]:
    """A box with a package's name and what it does."""
    fill, line = colours
    rows = textwrap.wrap(text, max(10, int(width / 6.2)))[:3]
    area = f"x='{x:.0f}' y='{y:.0f}' width='{width:.0f}' height='{ROW - GAP}' rx='6'"
    return [
        f"<rect {area} fill='{fill}' stroke='{line}'/>",
        f"<text x='{x + 10:.0f}' y='{y + 18:.0f}' {FONT} font-size='14' font-weight='600' fill='{line}'>{name}</text>",
        *(
            f"<text x='{x + 10:.0f}' y='{y + 33 + 13 * i:.0f}' {FONT} font-size='11' fill='#333'>{escape(row)}</text>"
            for i, row in enumerate(rows)
        ),
    ]


def drawing(root: Path) -> str:
    """An SVG of the two distributions."""
    shapes: list[str] = []
    y = MARGIN

    def title(text: str, colour: str) -> None:
        nonlocal y
        shapes.append(
            f"<text x='{MARGIN}' y='{y + 16}' {FONT} font-size='15' font-weight='700' fill='{colour}'>{text}</text>"
        )
        y += 28

    def row(package: Path, names: list[str], colours: tuple[str, str]) -> None:
        nonlocal y
        width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        for i, name in enumerate(names):
            shapes.extend(box(MARGIN + i * (width + GAP), y, width, name, sentence(package / name), colours))
        y += ROW

    title("kws-export: on a workstation, with torch", WORKSTATION[1])
    export = root / "export" / "kws_export"
    rooms = sorted(path.parent.name for path in export.glob("*/__init__.py"))
    for i in range(0, len(rooms), 3):
        row(export, rooms[i : i + 3], WORKSTATION)
    y += 6
    shapes.append(
        f"<text x='{WIDTH / 2:.0f}' y='{y + 8}' {FONT} font-size='12' text-anchor='middle' fill='#777'>"
        "▼ imports, and writes the model files that the device reads</text>"
    )
    y += 22
    title("kws-edge: on the device, with numpy and ONNX Runtime", DEVICE[1])
    for names in layers(root):
        row(root / "kws_edge", names, DEVICE)
    shapes.append(
        f"<text x='{WIDTH / 2:.0f}' y='{y + 8}' {FONT} font-size='12' text-anchor='middle' fill='#777'>"
        "a package imports only from the rows below its own</text>"
    )
    height = y + 20
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img' "
        f"aria-label='The packages of kws-edge and kws-export and the direction of their imports'>"
        f"<rect width='{WIDTH}' height='{height}' rx='8' fill='#fff'/>{''.join(shapes)}</svg>\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawing(Path(__file__).parents[2]), encoding="utf-8")
