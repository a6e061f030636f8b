"""What all plots of a report share: their files, their colours, and small multiples with one panel for each variant.

Colours are from Okabe and Ito's palette, which the colour-blind can tell apart; every line also has a style of its own.
The same scores give the same files: nothing in them depends on the day, and SVG identifiers are salted with a constant.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from kws_edge.arrays import F64
from kws_edge.text import counted
from kws_export.evaluation.score_file import KeptAnswers
from kws_export.report.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
COLOUR: dict[str, str] = {"entropy": BLUE, "vacuity": ORANGE, "both": GREEN}
STYLE: dict[str, str] = {"entropy": "-", "vacuity": "--", "both": ":"}

COLUMNS = 3
PANEL = (2.5, 1.9)  # inches

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "kws-edge",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so the files are the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure to be drawn.

    Attributes
    ----------
    name : of its files.
    caption : what it shows, one or two sentences.
    draw : draws it into an empty figure.
    """

    name: str
    caption: str
    draw: Callable[["Figure", Comparison], None]

    def save(self, comparison: Comparison, folder: Path) -> None:
        """Write NAME.png and NAME.svg."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        folder.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_SETTINGS):
            figure = Figure(layout="constrained")
            self.draw(figure, comparison)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # it is laid out now, and need not be for each file
            figure.savefig(folder / f"{self.name}.png", metadata={"Software": None})
            figure.savefig(folder / f"{self.name}.svg", metadata={"Date": None, "Creator": None})


@contextmanager
def panels(
    figure: "Figure", c: Comparison, title: str, x: str, y: str, *, shared: bool = True
) -> Iterator[dict[str, "Axes"]]:
    """A panel for each variant: shared axes unless said otherwise, labels outside, one legend below for all."""
    variants = list(c.runs)
    columns = min(COLUMNS, len(variants))
    rows = -(-len(variants) // columns)
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * rows + 0.7)
    panels = list(figure.subplots(rows, columns, sharex=shared, sharey=shared, squeeze=False).flat)
    for i, ax in enumerate(panels[: len(variants)]):
        n = len(c.runs[variants[i]])
        ax.set_title(f"{variants[i]} ({counted(n, 'seed')})")
        if i % columns == 0:
            ax.set_ylabel(y)
        if i + columns >= len(variants):  # nothing below
            ax.set_xlabel(x)
            ax.tick_params(labelbottom=True)
    for spare in panels[len(variants) :]:
        spare.set_visible(False)
    yield dict(zip(variants, panels, strict=False))
    figure.suptitle(title, fontsize=9)
    legend(figure, panels[0])


def legend(figure: "Figure", ax: "Axes") -> None:
    """One legend below all panels, from the lines of one of them."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def band(ax: "Axes", x: npt.ArrayLike, runs: F64, *, colour: str, style: str, label: str) -> None:
    """The mean of curves [seeds, points], and ± 2σ where there are two seeds or more."""
    middle = runs.mean(axis=0)
    ax.plot(x, middle, color=colour, linestyle=style, label=label)
    if len(runs) > 1:
        reach = 2 * runs.std(axis=0, ddof=1)
        ax.fill_between(x, middle - reach, middle + reach, color=colour, alpha=0.2, linewidth=0)


def on_test(c: Comparison, variant: str) -> list[KeptAnswers]:
    """The answers on the test split of each run of a variant."""
    return [run.sets["test"] for run in c.runs[variant]]
