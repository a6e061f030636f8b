"""The table of a folder's models, in its README.md: a row a file, from what the file and its card say.

The card has what the file has not: what its thresholds gave on the test split.
"""

import re
from pathlib import Path

from kws_edge.errors import ModelError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models
from kws_export.report.tables import NONE, Table

TARGET = "99.5 %"

_HEAD = [
    "model", "variant", "classes", "size", "test accuracy", f"entropy at {TARGET}: accepted", "coverage",
    "others withheld", f"vacuity at {TARGET}: accepted", "coverage", "others withheld",
]  # fmt: skip
_BEGIN, _END = "<!-- kws-export zoo -->", "<!-- end -->"


def update(folder: Path) -> int:
    """Write the table into `folder/README.md`, between its two marks; how many models it has.

    Raises
    ------
    ModelError : a model has no card, its card lacks an operating point, or README.md lacks the marks.
    """
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ModelError(f"{readme}: expected a table between the lines {_BEGIN} and {_END}")
    files = sorted(shipped_models(folder).values(), key=lambda path: path.stem != DEFAULT_MODEL)
    table = Table("zoo", "", "", _HEAD, [row(file) for file in files]).to_markdown()
    before, rest = text.split(_BEGIN)
    readme.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}", encoding="utf-8")
    return len(files)


def row(file: Path) -> list[str]:
    """A model's cells."""
    card = file.with_suffix(".md")
    if not card.is_file():
        raise ModelError(f"{file} has no card {card.name}; expected one, as kws-export export writes it")
    metadata, text = KeywordModel.load(file).metadata, card.read_text(encoding="utf-8")
    return [
        f"[{metadata.name}]({card.name})",
        f"`{metadata.variant}`",
        str(len(metadata.labels)),
        f"{file.stat().st_size / 1000:.0f} kB",
        f"{100 * metadata.accuracy['test']['accuracy']:.2f} %",
        *_observed(text, "entropy", card),
        *_observed(text, "vacuity", card),
    ]


def _observed(card: str, score: str, path: Path) -> list[str]:
    """Accepted accuracy, coverage and share of other words withheld, on the test split."""
    found = re.search(rf"^\| {score} \| {re.escape(TARGET)} \|(.*)\|$", card, re.MULTILINE)
    if not found:
        raise ModelError(f"{path} has no operating point of {score} at {TARGET}; expected a card of kws-export")
    _, _, _, _, accepted, coverage, _, *others = (cell.strip() for cell in found[1].split("|"))
    return [accepted, coverage, others[0] if others else NONE]
