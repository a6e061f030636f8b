"""Plots of the losses: the gap between the Dirichlet-expected and the plug-in loss, and accuracy over the epochs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kws_export.evaluation.gaps import MUCH, Gaps
from kws_export.report.comparison import Comparison
from kws_export.report.panels import BLUE, GREEN, GREY, ORANGE, Plot, band, on_test, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gap_plots(c: Comparison) -> Iterator[Plot]:
    """The gap of each loss, where some run kept its logits."""
    if any(_gaps(c, v) for v in c.runs):
        yield Plot(
            "gap-ce",
            "Dirichlet-expected less plug-in cross-entropy on the test split over α₀, both axes logarithmic: medians "
            "of 24 bins of equal count. The bound is (1 + 1/p̂_y)/α₀ clip by clip; the remainder is what the second "
            "order leaves.",
            lambda figure, comparison: gaps(figure, comparison, _CE_LINES, "cross-entropy, nats"),
        )
        yield Plot(
            "gap-mse",
            "The same of the squared error, with the two Lipschitz bounds, L = 2√2.",
            lambda figure, comparison: gaps(figure, comparison, _MSE_LINES, "squared error"),
        )


_CE_LINES = (
    ("ce", BLUE, "-", "gap"),
    ("ce_bound", ORANGE, "--", "its bound"),
    ("ce_remainder", GREEN, ":", "remainder |R|"),
    ("ce_remainder_bound", GREY, "-.", "G/(3(α₀+1))"),
)


_MSE_LINES = (
    ("mse", BLUE, "-", "gap"),
    ("mse_tight", ORANGE, "--", "tight Lipschitz bound"),
    ("mse_loose", GREY, "-.", "loose Lipschitz bound"),
)


def _gaps(c: Comparison, variant: str) -> list[Gaps]:
    return [Gaps.of(test, variant) for test in on_test(c, variant) if test.logits is not None]


def gaps(figure: "Figure", c: Comparison, lines: tuple[tuple[str, str, str, str], ...], y: str) -> None:
    """A gap and its bounds over α₀; a panel stays empty where no logits were kept."""
    with panels(figure, c, "Dirichlet-expected less plug-in loss, test split", "α₀", y) as axes:
        for variant, ax in axes.items():
            ax.set_xscale("log")
            ax.set_yscale("log")
            found = _gaps(c, variant)
            if not found:
                continue
            alpha0 = np.concatenate([g.alpha0 for g in found])
            bins = np.array_split(np.argsort(alpha0), 24)
            middle = [np.median(alpha0[b]) for b in bins]
            for name, colour, style, label in lines:
                values = np.concatenate([getattr(g, name) for g in found])
                ax.plot(middle, [np.median(values[b]) for b in bins], color=colour, linestyle=style, label=label)
            ax.axvline(MUCH, color=GREY, linewidth=0.6)


def training_plot(c: Comparison) -> Iterator[Plot]:
    """The accuracy over the epochs, where every run kept its history."""
    if all(run.history for runs in c.runs.values() for run in runs):
        yield Plot(
            "training",
            "Accuracy on validation and on the augmented training clips by epoch; mean over seeds, bands ± 2σ.",
            training,
        )


def training(figure: "Figure", c: Comparison) -> None:
    """Accuracy over epochs."""
    lines = (("validation_accuracy", BLUE, "-", "validation"), ("train_accuracy", ORANGE, "--", "training, augmented"))
    with panels(figure, c, "Training", "epoch", "accuracy, %") as axes:
        for variant, ax in axes.items():
            for name, colour, style, label in lines:
                runs = np.array([[epoch[name] for epoch in run.history] for run in c.runs[variant]])
                band(ax, range(1, runs.shape[1] + 1), 100 * runs, colour=colour, style=style, label=label)
            ax.set_ylim(50, 100)
