"""The figures of a report: small multiples, one panel a variant, the same axes in all of them.

Colours are from Okabe and Ito's palette, which the colour-blind can tell apart; every line also has a style of its own.
The same scores give the same files: nothing in them depends on the day, and SVG identifiers are salted with a constant.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F64
from kws_edge.model.score import SCORES, Score
from kws_export.evaluation import metrics
from kws_export.evaluation.gaps import MUCH, Gaps
from kws_export.evaluation.score_runs import KeptAnswers
from kws_export.evaluation.scoring import TARGETS
from kws_export.evaluation.studies import bounded_density, curve_at, risk_at_coverage
from kws_export.report.comparison import Comparison, Key
from kws_export.report.report_tables import MAIN_TARGET, SET_TITLES, noisy_sets, outside_sets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
COLOUR: dict[str, str] = {"entropy": BLUE, "vacuity": ORANGE, "both": GREEN}
STYLE: dict[str, str] = {"entropy": "-", "vacuity": "--", "both": ":"}

COLUMNS = 3
PANEL = (2.5, 1.9)  # inches
BANDWIDTH = 0.02
"""Of the densities: one for all panels, so that a narrow peak is the score's doing and not the estimate's."""

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


def all_plots(c: Comparison) -> list[Plot]:
    """The figures that the runs' sets allow, in the order of the report."""
    plots = [
        *(_thresholds_plot(score) for score in SCORES),
        *(_gap_plots(c)),
        *(_training_plot(c)),
        Plot(
            "risk-coverage",
            "Error rate among the surest clips of the test split, by share accepted; mean over seeds, bands ± 2σ. "
            "Grey: the other variants, by entropy. The axis of errors is logarithmic. Clips of equal score are "
            "accepted together, so a step is a crowd of them.",
            risk_coverage,
        ),
        *(_density_plot(score) for score in SCORES),
        Plot(
            "reliability",
            "Accuracy against confidence (probability of the predicted word) on the test split, 15 bins, all seeds "
            "together; a dot's area grows with the share of clips in its bin. Above the diagonal: less confident than "
            "right.",
            reliability,
        ),
        Plot(
            "promise",
            "Accepted accuracy on test at the thresholds chosen on validation for three targets (dotted), with 95 % "
            "intervals at the seeds' mean counts; the panels cut off what lies below 97 %.",
            promises,
        ),
    ]
    if outside_sets(c):
        plots.append(
            Plot(
                "outside",
                "AUROC of each score for sounds from outside the vocabulary against the test clips; mean over seeds.",
                outside,
            )
        )
    if noisy_sets(c):
        caption = (
            "The test split in noise that training did not use: accuracy without abstention, and coverage and accepted "
            f"accuracy by entropy at the threshold for {100 * MAIN_TARGET} % chosen on validation, without noise. Mean "
            "over seeds, bands ± 2σ."
        )
        plots.append(Plot("noise", caption, noise))
    return plots


@contextmanager
def _panels(figure: "Figure", c: Comparison, title: str, x: str, y: str) -> Iterator[dict[str, "Axes"]]:
    """A panel for each variant: shared axes, labels outside, one legend below for all."""
    variants = list(c.runs)
    columns = min(COLUMNS, len(variants))
    rows = -(-len(variants) // columns)
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * rows + 0.7)
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for i, ax in enumerate(panels[: len(variants)]):
        n = len(c.runs[variants[i]])
        ax.set_title(f"{variants[i]} ({n} seed{'s' if n > 1 else ''})")
        if i % columns == 0:
            ax.set_ylabel(y)
        if i + columns >= len(variants):  # nothing below
            ax.set_xlabel(x)
            ax.tick_params(labelbottom=True)
    for spare in panels[len(variants) :]:
        spare.set_visible(False)
    yield dict(zip(variants, panels, strict=False))
    figure.suptitle(title, fontsize=9)
    _legend(figure, panels[0])


def _legend(figure: "Figure", ax: "Axes") -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _band(ax: "Axes", x: npt.ArrayLike, runs: F64, *, colour: str, style: str, label: str) -> None:
    """The mean of curves [seeds, points], and ± 2σ where there are two seeds or more."""
    middle = runs.mean(axis=0)
    ax.plot(x, middle, color=colour, linestyle=style, label=label)
    if len(runs) > 1:
        reach = 2 * runs.std(axis=0, ddof=1)
        ax.fill_between(x, middle - reach, middle + reach, color=colour, alpha=0.2, linewidth=0)


# ---- threshold curves


def _thresholds_plot(score: Score) -> Plot:
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
    with _panels(
        figure, c, f"Test split, withheld where {score} > t", f"threshold t on {score}", "share of clips, %"
    ) as axes:
        for variant, ax in axes.items():
            curves = [curve_at(t.correct, t.score(score), grid) for t in _tests(c, variant)]
            accepted = np.array([curve.accepted_accuracy for curve in curves])
            total = np.array([curve.total_accuracy for curve in curves])
            _band(ax, grid, 100 * accepted, colour=BLUE, style="-", label="accuracy of what is accepted")
            _band(ax, grid, 100 * total, colour=ORANGE, style="--", label="accepted and right, of all")
            coverage = np.array([curve.coverage for curve in curves])
            _band(ax, grid, 100 * coverage, colour=GREEN, style=":", label="accepted, of all")
            ax.set_ylim(60, 100.6)
            ax.set_xlim(0, 1)


# ---- the gap between the losses


def _gap_plots(c: Comparison) -> Iterator[Plot]:
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
    return [Gaps.of(test, variant) for test in _tests(c, variant) if test.logits is not None]


def gaps(figure: "Figure", c: Comparison, lines: tuple[tuple[str, str, str, str], ...], y: str) -> None:
    """A gap and its bounds over α₀; a panel stays empty where no logits were kept."""
    with _panels(figure, c, "Dirichlet-expected less plug-in loss, test split", "α₀", y) as axes:
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


# ---- training


def _training_plot(c: Comparison) -> Iterator[Plot]:
    if all(run.history for runs in c.runs.values() for run in runs):
        yield Plot(
            "training",
            "Accuracy on validation and on the augmented training clips by epoch; mean over seeds, bands ± 2σ.",
            training,
        )


def training(figure: "Figure", c: Comparison) -> None:
    """Accuracy over epochs."""
    lines = (("validation_accuracy", BLUE, "-", "validation"), ("train_accuracy", ORANGE, "--", "training, augmented"))
    with _panels(figure, c, "Training", "epoch", "accuracy, %") as axes:
        for variant, ax in axes.items():
            for name, colour, style, label in lines:
                runs = np.array([[epoch[name] for epoch in run.history] for run in c.runs[variant]])
                _band(ax, range(1, runs.shape[1] + 1), 100 * runs, colour=colour, style=style, label=label)
            ax.set_ylim(50, 100)


# ---- densities


def _density_plot(score: Score) -> Plot:
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
    with _panels(figure, c, f"{score.capitalize()} of right and wrong answers, test split", score, "density") as axes:
        for variant, ax in axes.items():
            u = np.concatenate([t.score(score) for t in _tests(c, variant)])
            right = np.concatenate([t.correct for t in _tests(c, variant)])
            for values, colour, style, label in ((u[right], BLUE, "-", "right"), (u[~right], ORANGE, "--", "wrong")):
                if values.size:
                    density = bounded_density(values, grid, BANDWIDTH)
                    ax.plot(grid, density, color=colour, linestyle=style, label=label)
            ax.set_yscale("log")
            ax.set_ylim(0.02, 60)
            ax.set_xlim(0, 1)


# ---- reliability


def reliability(figure: "Figure", c: Comparison) -> None:
    """Accuracy over confidence."""
    with _panels(figure, c, "Reliability, test split", "confidence", "accuracy") as axes:
        for variant, ax in axes.items():
            right = np.concatenate([t.correct for t in _tests(c, variant)])
            confidence = np.concatenate([t.p_predicted for t in _tests(c, variant) if t.p_predicted is not None])
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


# ---- risk and coverage


def risk_coverage(figure: "Figure", c: Comparison) -> None:
    """Error rate over coverage."""
    coverages = np.linspace(0.5, 1, 51)
    risks = {
        (v, s): 100 * np.array([risk_at_coverage(t.correct, t.score(s), coverages) for t in _tests(c, v)])
        for v in c.runs
        for s in SCORES
    }
    title = "Risk and coverage, test split"
    with _panels(figure, c, title, "coverage, %", "error rate, %") as axes:
        for variant, ax in axes.items():
            for other in c.runs:
                ax.plot(100 * coverages, risks[other, "entropy"].mean(axis=0), color=GREY, linewidth=0.5, alpha=0.6)
            for s in SCORES:
                _band(ax, 100 * coverages, risks[variant, s], colour=COLOUR[s], style=STYLE[s], label=f"by {s}")
            ax.set_yscale("log")
            ax.set_xlim(50, 100)
            ax.set_ylim(0.05, 25)


# ---- promise


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
    _legend(figure, axes[0])


# ---- outside the vocabulary


def outside(figure: "Figure", c: Comparison) -> None:
    """AUROC for each set from outside."""
    sets = outside_sets(c)
    title = "Sounds from outside the vocabulary, against test clips"
    with _panels(figure, c, title, "AUROC, %", "") as axes:
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


# ---- noise


def noise(figure: "Figure", c: Comparison) -> None:
    """Accuracy, coverage and accepted accuracy over the ratio."""
    sets = ["test", *noisy_sets(c)]
    lines = (
        (Key("accepted_accuracy", "", "entropy", MAIN_TARGET, "validation"), BLUE, "-", "accuracy of what is accepted"),
        (Key("accuracy", ""), GREEN, ":", "accuracy without abstention"),
        (Key("coverage", "", "entropy", MAIN_TARGET, "validation"), ORANGE, "--", "coverage"),
    )
    title = f"Test split in noise; threshold on entropy for {100 * MAIN_TARGET} % from validation"
    with _panels(figure, c, title, "signal-to-noise ratio", "share of clips, %") as axes:
        for variant, ax in axes.items():
            for key, colour, style, label in lines:
                runs = np.array([c.values(variant, key._replace(on=name)) for name in sets]).T
                _band(ax, range(len(sets)), 100 * runs, colour=colour, style=style, label=label)
            ax.set_xticks(range(len(sets)), ["none" if name == "test" else SET_TITLES[name] for name in sets])
            ax.set_ylim(0, 102)


def _tests(c: Comparison, variant: str) -> list[KeptAnswers]:
    return [run.sets["test"] for run in c.runs[variant]]
