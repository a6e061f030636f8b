"""`kws-edge evaluate-stream --rates`: words found at given rates of false accepts, whatever the model's thresholds."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.progress import bar
from kws_edge.model.score import SCORES

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.evaluation import Rate, StreamReport
    from kws_edge.tuning.points import Point
    from kws_edge.tuning.traced import Traced

_UNTIL = 10
"""The curves end at so many times the highest of the rates."""


def curves(
    model: "KeywordModel",
    traced: Sequence["Traced"],
    negatives: int,
    settings: "StreamSettings",
    words: Sequence[str],
    rates: Sequence[float],
    plot: Path | None,
    about: Mapping[str, object] | None,
) -> None:
    """Print a table, or JSON where `about` is given, and draw the curves.

    The last of the streams, so many, are those of the negatives; on these, joined, the rates are counted.
    """
    from kws_edge.tuning import calibration, choice
    from kws_edge.tuning.plot import curves_plot
    from kws_edge.tuning.points import assess

    metadata = model.metadata
    composed, without = traced[:-negatives], traced[-negatives:]
    known = [stream for stream in composed if any(word.label in words for word in stream.words)]
    names = [score for score in SCORES if score in settings.thresholds]
    tried = calibration.candidates(metadata, known, without, settings, names, words)
    with bar("thresholds", len(tried)) as step:
        points = calibration.trade_off(
            metadata, known, without, settings, tried, words, until=_UNTIL * max(rates), progress=step
        )
    found = dict(zip(rates, choice.at_rates(points, rates), strict=True))
    if about is None:
        minutes = ", ".join(f"{stream.seconds / 60:.1f} minutes of {stream.name}" for stream in without)
        click.echo(f"model {model.name}, smoothing {settings.smoothing:g} s, crowding {settings.crowding:g}; {minutes}")
        columns = f"{'UP TO':20} {'FOUND':23} {'WRONG':>5} {'DELAY P50':>9}  STREAM"
        click.echo(f"{'RATE':>5} {'FALSE ACCEPTS/H':22} {columns}")
    for rate, point in found.items():
        of = {s.name: assess(metadata, [s], point.settings, words) for s in composed} if point else {}
        if about is not None:
            click.echo(json.dumps({**about, "rate": rate, **_as_json(point, of)}, allow_nan=False))
        elif point is None:
            click.echo(f"{rate:5g} no threshold gives so few")
        else:
            _table(rate, point, of)
    _warn_short(sum(stream.seconds for stream in without) / 3600, rates)
    if plot:
        drawn = {
            stream.name: [
                (
                    point.joined.false_accepts_per_hour.value,
                    assess(metadata, [stream], point.settings, words),
                )
                for point in points
            ]
            for stream in known
        }
        curves_plot(drawn, plot)


def _as_json(point: "Point | None", of: Mapping[str, "StreamReport"]) -> dict[str, object]:
    if point is None:
        return {"settings": None}
    streams = {name: report.to_dict() for name, report in of.items()}
    return {"settings": point.settings.to_dict(), "negatives": point.joined.to_dict(), "streams": streams}


def _warn_short(hours: float, rates: Sequence[float]) -> None:
    """Say which rates the negatives are too short to tell from none."""
    short = [rate for rate in rates if rate * hours < 1]
    if short:
        told = ", ".join(f"{rate:g}" for rate in short)
        click.echo(
            f"Warning: {60 * hours:.1f} minutes of negatives are too short for {told} an hour, which allows "
            f"no false accept on them; expected {60 / min(short):.0f} minutes or more",
            err=True,
        )


def _table(rate: float, point: "Point", of: Mapping[str, "StreamReport"]) -> None:
    at = f"{rate:g}"
    per_hour = span(point.joined.false_accepts_per_hour)
    up_to = " and ".join(f"{score} {threshold:.3g}" for score, threshold in point.settings.thresholds.items())
    for name, report in of.items():
        named = f"{report.unknown_accepted} of {report.unknown} named"
        hits = f"{span(report.hit_rate, 100)} %" if report.hit_rate else named
        delay = report.delay(0.5)
        late = "" if delay is None else f"{delay:.2f}"
        click.echo(f"{at:>5} {per_hour:22} {up_to:20} {hits:23} {report.wrong:5} {late:>9}  {name}")
        at = per_hour = up_to = ""


def span(rate: "Rate", scale: float = 1) -> str:
    """A rate with its interval."""
    return f"{scale * rate.value:.1f} ({scale * rate.low:.1f} to {scale * rate.high:.1f})"
