"""`kws-edge calibrate`: choose a stream's thresholds from recordings, and write them into a copy of the model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.evaluate_stream import existing_file, existing_folder
from kws_edge.cli.recordings import bar, draw, recordings, short_name, spoken, trace_negatives, trace_words
from kws_edge.errors import SettingError

if TYPE_CHECKING:
    from kws_edge.calibration import Point, Traced
    from kws_edge.metadata import Score

_SHOWN = 20
"""The curve ends at so many times the limit, or so many false accepts per hour."""


@click.command()
@click.option("--negatives", multiple=True, required=True, metavar="PATH", help="Folder, file or pattern; repeatable.")
@click.option("--positives", type=existing_folder, required=True, help="Clips of words, as WORD/clip.")
@click.option("--list", "listed", type=existing_file, help="Use only these of the clips, as a validation_list.txt.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The copy to write, NAME.onnx.")
@click.option("--force", is_flag=True, help="Write over it where it exists.")
@click.option(
    "--false-accepts-per-hour",
    "limit",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="The most on each of the negatives.",
)
@click.option("--count", type=click.IntRange(1), default=500, show_default=True, help="How many of the clips.")
@click.option("--snr", type=float, multiple=True, default=(10.0,), show_default=True, help="Words over negatives, dB.")
@click.option(
    "--smoothing",
    type=float,
    multiple=True,
    default=(0.2, 0.3, 0.4),
    show_default=True,
    help="Seconds to try; repeatable.",
)
@click.option(
    "--score",
    "scores",
    type=click.Choice(["entropy", "vacuity"]),
    multiple=True,
    default=("entropy", "vacuity"),
    help="Uncertainty to try; repeatable  [default: both]",
)
@click.option("--hop", type=float, default=0.1, show_default=True, help="Seconds between the network's windows.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the clips drawn and the pauses.")
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw the trade-off curve.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the curve and the choice.")
def calibrate(
    negatives: tuple[str, ...],
    positives: Path,
    listed: Path | None,
    out: Path,
    force: bool,
    limit: float,
    count: int,
    snr: tuple[float, ...],
    smoothing: tuple[float, ...],
    scores: tuple["Score", ...],
    hop: float,
    seed: int,
    model: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Set how sure a stream must be, so that it fires no more often than you allow where no word is said.

    Of all thresholds that hold the limit on each of the negatives, the one with the most hits is taken: on words in
    silence and, at each --snr, over all negatives. The copy says what it was calibrated on; the model's own file stays
    as it is. The trade-off curve is printed: what is found, and what it costs. Use recordings that the model was not
    trained on, and others than those it is judged by.

    \b
    kws-edge calibrate --positives speech_commands --list speech_commands/validation_list.txt \\
        --negatives my_kitchen/ --negatives radio.wav --false-accepts-per-hour 0.5 --out mine.onnx
    kws-edge listen --model mine.onnx

    An hour without a false accept shows, at 95 %, a rate below 3.7 an hour: use hours of negatives where you can.
    """
    from kws_edge.calibration import candidates, choose, frontier, trade_off
    from kws_edge.cli.det_plot import det_plot
    from kws_edge.decision import StreamSettings
    from kws_edge.model import KeywordModel
    from kws_edge.model_file import check_target, write_copy
    from kws_edge.steps import SUFFIX, has_steps, step_file
    from kws_edge.svg import check_name

    loaded = KeywordModel.load(model)
    metadata = loaded.metadata
    check_target(loaded.path, out, overwrite=force)
    if plot:
        check_name(plot)
    bases = [(score, StreamSettings({score: 1.0}, smoothing=seconds)) for score in scores for seconds in smoothing]
    clips = draw([clip for clip in spoken(positives, listed) if clip[0] in loaded.labels], count, seed)
    if not clips:
        raise SettingError(f"no word of the model in {positives}; expected folders {', '.join(loaded.labels)}")
    background = recordings(negatives)

    with_words: list[Traced] = []
    with bar("words", len(clips) * (1 + len(snr))) as step:
        with_words.append(trace_words(loaded, clips, "words", hop, seed, step))
        for decibels in snr:
            name = f"words at {decibels:g} dB"
            stream = trace_words(loaded, clips, name, hop, seed, step, background=background, snr=decibels)
            with_words.append(stream)
    without: list[Traced] = []
    with bar("negatives", sum(len(recordings([pattern])) for pattern in negatives)) as step:
        without += [trace_negatives(loaded, pattern, hop, step) for pattern in negatives]
    thresholds = {score: candidates(with_words, without, score) for score in scores}
    points: list[Point] = []
    with bar("thresholds", sum(len(thresholds[score]) for score, _ in bases)) as step:
        for score, base in bases:
            points += trade_off(
                metadata, with_words, without, base, thresholds[score], until=_SHOWN * max(limit, 1), progress=step
            )
    chosen, curve = choose(points, limit), frontier(points)

    calibration = {
        "method": "most hits under the limit on each of the negatives",
        "limit": limit,
        "hop": hop,
        "seed": seed,
        "positives": {"clips": len(clips), "from": short_name(str(listed or positives)), "snr": [None, *snr]},
        "negatives": {stream.name: {"seconds": stream.seconds} for stream in without},
        "words": chosen.words.to_dict(),
        "false_accepts_per_hour": {n: r.false_accepts_per_hour._asdict() for n, r in chosen.negatives.items()},
    }
    stream_metadata = {"settings": chosen.settings.to_dict(), "calibration": calibration}
    calibrated = replace(metadata, stream=stream_metadata)
    write_copy(loaded.path, out, calibrated, overwrite=force)
    if has_steps(loaded):
        write_copy(step_file(loaded), out.with_suffix(SUFFIX), calibrated, overwrite=True)
    if plot:
        det_plot(curve, chosen, limit, plot)
    if as_json:
        result = {"out": str(out), "chosen": chosen.to_dict(), "curve": [point.to_dict() for point in curve]}
        click.echo(json.dumps(result, allow_nan=False))
        return
    click.echo(f"  {'SCORE':8} {'UP TO':>8} {'SMOOTHING':>9} {'FOUND':>7} {'WRONG':>7} {'FALSE ACCEPTS/H':>15}")
    for point in curve:
        click.echo(_row(point, chosen))
    click.echo(f"* is what {out} holds now.")


def _row(point: "Point", chosen: "Point") -> str:
    ((score, threshold),) = point.settings.thresholds.items()
    return (
        f"{'*' if point is chosen else ' '} {score:8} {threshold:8.4g} {point.settings.smoothing:7.2f} s "
        f"{1 - point.miss_rate:7.1%} {point.words.wrong / point.words.words:7.1%} {point.false_accepts_per_hour:15.2f}"
    )
