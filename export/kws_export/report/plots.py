"""The plots of a report, in its order: how abstention does, how the losses compare, and what training did not see."""

from kws_edge.model.score import SCORES
from kws_export.report.abstention_plots import PROMISE, RELIABILITY, RISK_COVERAGE, density_plot, thresholds_plot
from kws_export.report.comparison import Comparison
from kws_export.report.loss_plots import gap_plots, loss_times_plot, training_plot
from kws_export.report.panels import Plot
from kws_export.report.shift_plots import noise_plot, outside_plot


def all_plots(c: Comparison) -> list[Plot]:
    """The plots that the runs' sets allow."""
    return [
        *(thresholds_plot(score) for score in SCORES),
        *gap_plots(c),
        *training_plot(c),
        *loss_times_plot(c),
        RISK_COVERAGE,
        *(density_plot(score) for score in SCORES),
        RELIABILITY,
        PROMISE,
        *outside_plot(c),
        *noise_plot(c),
    ]
