"""Plots of what training did not see: sounds from outside the vocabulary, and noise."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kws_edge.model.score import SCORES
from kws_export.report.comparison import Comparison
from kws_export.report.figures import Key
from kws_export.report.panels import BLUE, COLOUR, GREEN, ORANGE, Plot, band, panels
from kws_export.report.report_tables import SET_TITLES, noisy_sets, outside_sets
from kws_export.report.tables import MAIN_TARGET

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def outside_plot(c: Comparison) -> Iterator[Plot]:
    """Sounds from outside the vocabulary, where they were scored."""
    if outside_sets(c):
        yield Plot(
            "outside",
            "AUROC of each score for sounds from outside the vocabulary against the test clips; mean over seeds.",
            outside,
        )


def outside(figure: "Figure", c: Comparison) -> None:
    """AUROC for each set from outside."""
    sets = outside_sets(c)
    title = "Sounds from outside the vocabulary, against test clips"
    with panels(figure, c, title, "AUROC, %", "") as axes:
        for variant, ax in axes.items():
            for i, score in enumerate(SCORES):
                values = [c.estimate(variant, Key("auroc", name, score)) for name in sets]
                ax.scatter(
                    [100 * v.mean for v in values if v], [row + (i - 0.5) * 0.3 for row, v in enumerate(values) if v],
                    color=COLOUR[score], marker="os"[i], s=14, label=f"by {score}",
                )  # fmt: skip
            ax.set_yticks(range(len(sets)), [SET_TITLES[name] for name in sets])
            ax.set_ylim(len(sets) - 0.5, -0.5)
            ax.set_xlim(right=100.5)


def noise_plot(c: Comparison) -> Iterator[Plot]:
    """Noise, where it was scored."""
    if noisy_sets(c):
        yield Plot(
            "noise",
            "The test split in noise that training did not use: accuracy without abstention, and coverage and accepted "
            f"accuracy by entropy at the threshold for {100 * MAIN_TARGET} % chosen on validation, without noise. Mean "
            "over seeds, bands ± 2σ.",
            noise,
        )


def noise(figure: "Figure", c: Comparison) -> None:
    """Accuracy, coverage and accepted accuracy over the ratio."""
    sets = ["test", *noisy_sets(c)]
    lines = (
        (Key("accepted_accuracy", "", "entropy", MAIN_TARGET, "validation"), BLUE, "-", "accuracy of what is accepted"),
        (Key("accuracy", ""), GREEN, ":", "accuracy without abstention"),
        (Key("coverage", "", "entropy", MAIN_TARGET, "validation"), ORANGE, "--", "coverage"),
    )
    title = f"Test split in noise; threshold on entropy for {100 * MAIN_TARGET} % from validation"
    with panels(figure, c, title, "signal-to-noise ratio", "share of clips, %") as axes:
        for variant, ax in axes.items():
            for key, colour, style, label in lines:
                runs = np.array([c.values(variant, key._replace(on=name)) for name in sets]).T
                band(ax, range(len(sets)), 100 * runs, colour=colour, style=style, label=label)
            ax.set_xticks(range(len(sets)), ["none" if name == "test" else SET_TITLES[name] for name in sets])
            ax.set_ylim(0, 102)
