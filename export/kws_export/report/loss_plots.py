"""Plots of the losses: the gap between expected and plug-in loss, accuracy over the epochs, and what they cost."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kws_edge.model.variants import VARIANTS
from kws_export.evaluation.gaps import MUCH, Gaps
from kws_export.evaluation.score_file import RunScores
from kws_export.report.comparison import Comparison
from kws_export.report.loss_times import LossTimes
from kws_export.report.panels import BLUE, GREEN, GREY, ORANGE, Plot, band, on_test, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gap_plots(c: Comparison) -> Iterator[Plot]:
    """The gap of each loss, where some run kept its logits."""
    if _only(c, _has_logits):
        yield Plot(
            "gap-ce",
            "Dirichlet-expected less plug-in cross-entropy on the test split over α₀: medians of 24 bins of equal "
            "count, of the seeds whose logits were kept. Axes are logarithmic, and each panel has its own. The bound "
            "is (1 + 1/p̂_y)/α₀ clip by clip; the remainder is what the second order leaves.",
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


_DECADES = 1000.0
"""Ratio of an axis' ends up to which 2 and 5 are labelled beside 1."""


def _only(c: Comparison, has_it: Callable[[RunScores], bool]) -> Comparison | None:
    """The runs that have what a figure needs; None where none has."""
    runs = {v: some for v, every in c.runs.items() if (some := [run for run in every if has_it(run)])}
    return replace(c, runs=runs) if runs else None


def _has_logits(run: RunScores) -> bool:
    return run.sets["test"].logits is not None


def _has_history(run: RunScores) -> bool:
    return bool(run.history)


def gaps(figure: "Figure", c: Comparison, lines: tuple[tuple[str, str, str, str], ...], y: str) -> None:
    """A gap and its bounds over α₀, of the runs whose logits were kept."""
    from matplotlib.ticker import LogLocator, NullFormatter

    kept = _only(c, _has_logits)
    if not kept:
        return
    with panels(figure, kept, "Dirichlet-expected less plug-in loss, test split", "α₀", y, shared=False) as axes:
        for variant, ax in axes.items():
            ax.set_xscale("log")
            ax.set_yscale("log")
            found = [Gaps.of(test, variant) for test in on_test(kept, variant)]
            alpha0 = np.concatenate([g.alpha0 for g in found])
            bins = [b for b in np.array_split(np.argsort(alpha0), 24) if b.size]  # fewer where there are few clips
            middle = [np.median(alpha0[b]) for b in bins]
            for name, colour, style, label in lines:
                values = np.concatenate([getattr(g, name) for g in found])
                ax.plot(middle, [np.median(values[b]) for b in bins], color=colour, linestyle=style, label=label)
            low, high = ax.get_xlim()
            if low < MUCH < high:
                ax.axvline(MUCH, color=GREY, linewidth=0.6)
            ax.xaxis.set_minor_formatter(NullFormatter())
            if high < _DECADES * low:  # too few powers of ten to read a position from
                ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.xaxis.set_major_formatter("{x:g}")


def training_plot(c: Comparison) -> Iterator[Plot]:
    """The accuracy over the epochs, of the runs whose history was kept."""
    if kept := _only(c, _has_history):
        yield Plot(
            "training",
            "Accuracy on validation and on the augmented training clips by epoch; mean over seeds, bands ± 2σ. Of the "
            f"{sum(map(len, kept.runs.values()))} runs whose history was kept.",
            training,
        )


def training(figure: "Figure", c: Comparison) -> None:
    """Accuracy over epochs, where it was kept."""
    kept = _only(c, _has_history)
    if not kept:
        return
    lines = (("validation_accuracy", BLUE, "-", "validation"), ("train_accuracy", ORANGE, "--", "training, augmented"))
    with panels(figure, kept, "Training", "epoch", "accuracy, %") as axes:
        for variant, ax in axes.items():
            for name, colour, style, label in lines:
                epochs = min(len(run.history) for run in kept.runs[variant])
                runs = np.array([[epoch[name] for epoch in run.history[:epochs]] for run in kept.runs[variant]])
                band(ax, range(1, runs.shape[1] + 1), 100 * runs, colour=colour, style=style, label=label)
            ax.set_ylim(50, 100)


def loss_times_plot(c: Comparison) -> Iterator[Plot]:
    """What each loss costs, where it was measured."""
    if times := c.loss_times:
        yield Plot(
            "loss-times",
            "What each loss costs to compute, value and gradient.",
            lambda figure, comparison: loss_times(figure, times),
        )


def loss_times(figure: "Figure", times: LossTimes) -> None:
    """A bar for each variant, in one colour with a KL term and in another without."""
    names = sorted(times.losses, key=lambda name: times.losses[name])
    figure.set_size_inches(5.5, 0.25 * len(names) + 1.0)
    ax = figure.subplots()
    for text, colour, has_kl in (("with a KL term", ORANGE, True), ("without", BLUE, False)):
        rows = [i for i, name in enumerate(names) if bool(VARIANTS[name].kl_ramp_epochs) == has_kl]
        ax.barh(rows, [times.losses[names[i]] / 1000 for i in rows], color=colour, height=0.6, label=text)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"ms for value and gradient of a batch of {times.batch}, one core")
    ax.legend(loc="upper right")
