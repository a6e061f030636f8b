"""Tables of text cells, as markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from kws_export.report.comparison import Estimate

NONE = "–"
"""A cell for which there is no figure."""
MAIN_TARGET = 0.995
"""Where a table has room for one target."""
SINGLE = "†"
"""Marks a figure of a single seed, which has no spread."""

_LATEX = {
    "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "<": "$<$", ">": "$>$",
    "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "−": "$-$", "α": r"$\alpha$", "σ": r"$\sigma$",
    "₀": "$_0$", "²": "$^2$", "³": "$^3$", "–": "--", "†": r"$^\dagger$",
}  # fmt: skip
"""What pdfLaTeX refuses as it is, or sets as something else, of the characters that cells have."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes
    ----------
    name : of its files.
    caption : one line, what it shows.
    note : what a reader needs beside it, one paragraph; may be empty.
    head, rows : text cells, every row as long as the head. The first column is aligned left, others right.
    """

    name: str
    caption: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def to_markdown(self) -> str:
        """The cells alone; a variant's name is set as code by whoever makes the cell."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def to_csv(self) -> str:
        """Head and rows, as they are shown."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([_plain(row) for row in (self.head, *self.rows)])
        return out.getvalue()

    def to_latex(self) -> str:
        """A tabular with booktabs' rules, for \\input."""
        body = [f"  {self._latex_row(row)}" for row in self.rows]
        lines = [
            f"% {self.caption}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            r"  \toprule",
            f"  {self._latex_row(self.head)}",
            r"  \midrule",
            *body,
            r"  \bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _latex_row(cells: Sequence[str]) -> str:
        escaped = ("".join(_LATEX.get(c, c) for c in cell) for cell in _plain(cells))
        return " & ".join(escaped) + r" \\"


def _plain(cells: Sequence[str]) -> list[str]:
    """Cells without the marks of code, which mean nothing outside markdown."""
    return [cell.replace("`", "") for cell in cells]


def percent(fraction: float | None, digits: int = 2) -> str:
    """A fraction in percent, without the sign; NONE for None."""
    return NONE if fraction is None else f"{100 * fraction:.{digits}f}"


def spread(estimate: Estimate | None, scale: float = 100, digits: int = 2) -> str:
    """Mean ± 2σ over seeds; a single value marked as such; NONE for None."""
    if estimate is None:
        return NONE
    mean = f"{scale * estimate.mean:.{digits}f}"
    return f"{mean} {SINGLE}" if estimate.two_sigma is None else f"{mean} ± {scale * estimate.two_sigma:.{digits}f}"


def mean(estimate: Estimate | None, scale: float = 100, digits: int = 1) -> str:
    """The mean alone; NONE for None."""
    return NONE if estimate is None else f"{scale * estimate.mean:.{digits}f}"
