"""Plots of abstention on the test split: thresholds, risk and coverage, densities, reliability, and the promise."""

from typing import TYPE_CHECKING

import numpy as np

from kws_edge.model.score import SCORES, Score
from kws_export.evaluation import metrics
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import bounded_density, curve_at, risk_at_coverage
from kws_export.report.comparison import Comparison
from kws_export.report.figures import Key
from kws_export.report.panels import BLUE, COLOUR, GREEN, GREY, ORANGE, STYLE, Plot, band, legend, on_test, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANDWIDTH = 0.02
"""Of the densities: one for all panels, so that a narrow peak is the score's doing and not the estimate's."""


def thresholds_plot(score: Score) -> Plot:
    """Accuracy and coverage over the threshold."""
    return Plot(
        f"thresholds-{score}",
        f"What a threshold on {score} gives on the test split: accuracy of what is accepted, the share of all "
        "clips that is accepted (coverage, as the paper draws it), and the share that is accepted and right "
        "(Acc_total). Mean over seeds, bands ± 2σ.",
        lambda figure, c: thresholds(figure, c, score),
    )


def thresholds(figure: "Figure", c: Comparison, score: Score) -> None:
    """Acc_th and Acc_total over the threshold."""
    grid = np.sin(np.linspace(0, np.pi / 2, 151)[1:]) ** 2  # closer near the ends, where most scores are
    with panels(
        figure, c, f"Test split, withheld where {score} > t", f"threshold t on {score}", "share of clips, %"
    ) as axes:
        for variant, ax in axes.items():
            curves = [curve_at(t.correct, t.score(score), grid) for t in on_test(c, variant)]
            accepted = np.array([curve.accepted_accuracy for curve in curves])
            total = np.array([curve.total_accuracy for curve in curves])
            band(ax, grid, 100 * accepted, colour=BLUE, style="-", label="accuracy of what is accepted")
            band(ax, grid, 100 * total, colour=ORANGE, style="--", label="accepted and right, of all")
            coverage = np.array([curve.coverage for curve in curves])
            band(ax, grid, 100 * coverage, colour=GREEN, style=":", label="accepted, of all")
            ax.set_ylim(60, 100.6)
            ax.set_xlim(0, 1)


def density_plot(score: Score) -> Plot:
    """The score of right and of wrong answers."""
    return Plot(
        f"density-{score}",
        f"Density of {score} on the test split, for right and wrong answers, all seeds together; each has area 1. "
        f"Gaussian kernel of width {BANDWIDTH}, mirrored at 0 and 1, so a peak can be at most "
        f"{2 / (BANDWIDTH * np.sqrt(2 * np.pi)):.0f} high. The density's axis is logarithmic.",
        lambda figure, c: densities(figure, c, score),
    )


def densities(figure: "Figure", c: Comparison, score: Score) -> None:
    """Densities of a score for right and wrong answers."""
    grid = np.linspace(0, 1, 201)
    with panels(figure, c, f"{score.capitalize()} of right and wrong answers, test split", score, "density") as axes:
        for variant, ax in axes.items():
            u = np.concatenate([t.score(score) for t in on_test(c, variant)])
            right = np.concatenate([t.correct for t in on_test(c, variant)])
            for values, colour, style, label in ((u[right], BLUE, "-", "right"), (u[~right], ORANGE, "--", "wrong")):
                if values.size:
                    density = bounded_density(values, grid, BANDWIDTH)
                    ax.plot(grid, density, color=colour, linestyle=style, label=label)
            ax.set_yscale("log")
            ax.set_ylim(0.02, 60)
            ax.set_xlim(0, 1)


def reliability(figure: "Figure", c: Comparison) -> None:
    """Accuracy over confidence."""
    with panels(figure, c, "Reliability, test split", "confidence", "accuracy") as axes:
        for variant, ax in axes.items():
            right = np.concatenate([t.correct for t in on_test(c, variant)])
            confidence = np.concatenate([t.p_predicted for t in on_test(c, variant) if t.p_predicted is not None])
            table = metrics.reliability_table(right, confidence)
            ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, label="perfectly calibrated")
            ax.plot(table.confidence, table.accuracy, color=BLUE, linewidth=0.8)
            ax.scatter(
                table.confidence, table.accuracy, s=4 + 60 * table.count / table.count.sum(),
                color=BLUE, zorder=3, label="clips of a bin",
            )  # fmt: skip
            ece = c.estimate(variant, Key("ece", "test"))
            if ece:
                ax.text(0.03, 0.9, f"ECE {100 * ece.mean:.1f} %", transform=ax.transAxes, fontsize=7)
            ax.set_xlim(0, 1.03)
            ax.set_ylim(0, 1.05)


def risk_coverage(figure: "Figure", c: Comparison) -> None:
    """Error rate over coverage."""
    coverages = np.linspace(0.5, 1, 51)
    risks = {
        (v, s): 100 * np.array([risk_at_coverage(t.correct, t.score(s), coverages) for t in on_test(c, v)])
        for v in c.runs
        for s in SCORES
    }
    title = "Risk and coverage, test split"
    with panels(figure, c, title, "coverage, %", "error rate, %") as axes:
        for variant, ax in axes.items():
            for other in c.runs:
                ax.plot(100 * coverages, risks[other, "entropy"].mean(axis=0), color=GREY, linewidth=0.5, alpha=0.6)
            for s in SCORES:
                band(ax, 100 * coverages, risks[variant, s], colour=COLOUR[s], style=STYLE[s], label=f"by {s}")
            ax.set_yscale("log")
            ax.set_xlim(50, 100)
            ax.set_ylim(0.05, 25)


def promises(figure: "Figure", c: Comparison) -> None:
    """Accepted accuracy on test, with intervals."""
    variants = list(c.runs)
    figure.set_size_inches(7.5, 0.32 * len(variants) + 1.4)
    axes = figure.subplots(1, len(TARGETS), sharey=True)
    for ax, target in zip(axes, TARGETS, strict=True):
        ax.axvline(100 * target, color=GREY, linestyle=":", linewidth=1.2)
        for i, score in enumerate(SCORES):
            for row, variant in enumerate(variants):
                o = c.observed(variant, score, target, "validation")
                if o is None or o.interval is None:
                    continue
                x, y = 100 * o.accuracy.mean, row + (i - 0.5) * 0.36
                reach = [[max(0.0, x - 100 * o.interval.low)], [max(0.0, 100 * o.interval.high - x)]]
                marker = "o" if score == "entropy" else "s"
                ax.errorbar(
                    x, y, xerr=reach, fmt=marker, color=COLOUR[score], markersize=3.5, linewidth=1,
                    label=f"by {score}" if row == 0 else None,
                )  # fmt: skip
        ax.set_title(f"promised {100 * target:.1f} %")
        ax.set_xlim(97, 100.1)
        ax.set_xlabel("accepted accuracy, %")
    axes[0].set_yticks(range(len(variants)), variants)
    axes[0].invert_yaxis()
    figure.suptitle("Accepted accuracy on test, thresholds from validation", fontsize=9)
    legend(figure, axes[0])


RISK_COVERAGE = Plot(
    "risk-coverage",
    "Error rate among the surest clips of the test split, by share accepted; mean over seeds, bands ± 2σ. Grey: the "
    "other variants, by entropy. The axis of errors is logarithmic. Clips of equal score are accepted together, so a "
    "step is a crowd of them.",
    risk_coverage,
)
RELIABILITY = Plot(
    "reliability",
    "Accuracy against confidence (probability of the predicted word) on the test split, 15 bins, all seeds together; a "
    "dot's area grows with the share of clips in its bin. Above the diagonal: less confident than right.",
    reliability,
)
PROMISE = Plot(
    "promise",
    "Accepted accuracy on test at the thresholds chosen on validation for three targets (dotted), with 95 % intervals "
    "at the seeds' mean counts; the panels cut off what lies below 97 %.",
    promises,
)
