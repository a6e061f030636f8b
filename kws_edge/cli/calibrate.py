"""`kws-edge calibrate`: choose a stream's thresholds from recordings, and write them into a copy of the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.options import (
    SNR,
    WORDS,
    Number,
    existing_folder,
    force_option,
    hop_option,
    list_option,
    model_option,
    seed_option,
)
from kws_edge.cli.progress import bar
from kws_edge.errors import SettingError
from kws_edge.model.score import SCORES, STREAM_SCORES, StreamScore
from kws_edge.text import folder_name, one_line

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.metadata import Metadata
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.false_accepts import FalseAccepts
    from kws_edge.tuning.points import Point
    from kws_edge.tuning.traced import Traced

_SHOWN = 20
"""The curve ends at so many times the limit, or so many false accepts per hour."""
_LIMIT, _AFTER_WAKE_LIMIT = 0.5, 60.0
_HEADER = f"{'FOUND':>7} {'WRONG':>7} {'FALSE ACCEPTS/H':>15} {'DELAY P50':>9} {'SMOOTHING':>9}  UP TO"


@click.command()
@click.option("--positives", type=existing_folder, required=True, metavar="FOLDER", help="Clips of words, WORD/CLIP.")
@list_option
@click.option("--count", type=click.IntRange(1), default=500, show_default=True, metavar="N", help="Clips to draw.")
@click.option(
    "--negatives",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Speech without any of the words: a folder, file or pattern; repeatable.",
)
@click.option("--sounds", multiple=True, metavar="PATH", help="Recordings without speech; repeatable.")
@click.option(
    "--snr",
    type=SNR,
    multiple=True,
    default=(10.0,),
    show_default=True,
    metavar="DB",
    help="Also mix the words over the negatives at this ratio; repeatable.",
)
@click.option(
    "--words", type=WORDS, metavar="WORD,...", help="Calibrate for these words only  [default: all words of the model]"
)
@click.option(
    "--false-accepts-per-hour",
    "limit",
    type=Number(0),
    metavar="RATE",
    help="Limit on each recording of the negatives, for all words together  [default: 0.5; with --after-wake 60]",
)
@click.option(
    "--smoothing",
    type=Number(),
    multiple=True,
    default=(0.3, 0.5),
    show_default=True,
    metavar="SECONDS",
    help="Averaging time to try; repeatable.",
)
@click.option(
    "--score",
    "scores",
    type=click.Choice(STREAM_SCORES),
    multiple=True,
    default=("entropy", "vacuity"),
    show_default=True,
    help="Uncertainty to try; with both, both must be low; repeatable.",
)
@click.option(
    "--crowding",
    type=Number(0, 20),
    multiple=True,
    metavar="X",
    help="Extra certainty to try for words amid other sound; repeatable  [default: 0 and 8; with --after-wake 0]",
)
@click.option("--per-label", is_flag=True, help="Also try a threshold for each word; read the caution above.")
@click.option("--after-wake", is_flag=True, help="Calibrate the commands after a wake word; see above.")
@hop_option
@seed_option
@model_option
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.onnx", help="Copy to write.")
@force_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Plot the trade-off curve.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
def calibrate(
    negatives: tuple[str, ...],
    sounds: tuple[str, ...],
    positives: Path,
    listed: Path | None,
    words: list[str] | None,
    out: Path,
    force: bool,
    limit: float | None,
    count: int,
    snr: tuple[float, ...],
    smoothing: tuple[float, ...],
    scores: tuple[StreamScore, ...],
    crowding: tuple[float, ...],
    after_wake: bool,
    per_label: bool,
    hop: float,
    seed: int,
    model: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Choose a stream's thresholds from your own recordings.

    The thresholds are those that find most words within a limit on false accepts per hour. Every threshold is tried for
    each combination of --smoothing, --score and --crowding. Among those within the limit on every recording of the
    negatives, the one that finds most words wins, in silence and at each --snr. Longer smoothing answers later, so it
    is chosen only if it finds more than chance would explain. The result is written into a copy of the model, together
    with a record of how it was calibrated.

    \b
    kws-edge calibrate --positives speech_commands --list speech_commands/validation_list.txt \\
        --negatives my_kitchen/ --negatives radio.wav --false-accepts-per-hour 0.5 --out mine.onnx
    kws-edge listen --model mine.onnx

    It prints what each combination reaches within the limit, then the trade-off curve of the chosen one, then the false
    accepts on each recording of the negatives, with 95 % intervals.

    For a subset of the words the limit covers only their false accepts, so more of them are found:

    \b
    kws-edge calibrate --words yes,no --positives speech_commands --negatives my_kitchen/ --out yes-no.onnx
    kws-edge listen --model yes-no.onnx

    Use recordings that contain none of the words and that the model was not trained on; otherwise the result looks too
    good. Judge the result on yet other recordings, with `kws-edge evaluate-stream --model mine.onnx`.

    How long must the negatives be? One hour without a false accept shows, with 95 % confidence, that the rate is at
    most 3.7 an hour; 13 minutes show 17. To show 0.5 an hour takes 7.4 hours of --negatives in all. If yours are too
    short, the command says so and the copy records it; the threshold is then the best estimate they allow. Recordings
    without speech, such as a vacuum cleaner, belong in --sounds. The limit covers them as well, but nearly all false
    accepts come from speech, so they do not count towards those hours.

    Commands are usually said on their own, whereas conversation goes on. --crowding uses that: for each of the last 2.5
    s that held other sound about as loud, a word must be more certain, and with quiet around it it may be less certain.
    More words are then found at the same rate of false accepts, also over quieter sound. What remains are mostly single
    words of other talk, so include such recordings in the negatives. --crowding 0 turns it off.

    --after-wake calibrates the commands of `kws-edge listen --wake`. They count only for seconds after a wake word, so
    they may be less certain: the limit is per hour of listening for commands. Start from a model that was calibrated as
    above. Its own thresholds stay, and the copy holds both:

    \b
    kws-edge calibrate --after-wake --model mine.onnx --positives speech_commands --negatives radio.wav --out both.onnx
    kws-edge listen --model both.onnx --wake happy --then yes,no

    --per-label divides the limit among the words, so that one word with many false accepts does not hold back the
    others. It needs hours of negatives. With minutes of speech it exceeded the limit on other recordings, and was no
    better than a higher limit for all words.
    """
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.metadata import is_word
    from kws_edge.stream.settings import StreamSettings, chosen_labels
    from kws_edge.svg import check_name
    from kws_edge.tuning import calibration, choice
    from kws_edge.tuning.false_accepts import FalseAccepts
    from kws_edge.tuning.plot import det_plot
    from kws_edge.tuning.record import check_targets, stream_record, write_forms
    from kws_edge.tuning.recordings import check_apart, draw, short_name, short_names, spoken

    loaded = KeywordModel.load(model)
    metadata = loaded.metadata
    check_targets(loaded.path, out, overwrite=force)
    if plot:
        check_name(plot)
    if after_wake and not metadata.stream:
        raise SettingError(f"model {loaded.name} is not calibrated on streams; --after-wake needs one that is")
    limit = (_AFTER_WAKE_LIMIT if after_wake else _LIMIT) if limit is None else limit
    crowding = crowding or ((0.0,) if after_wake else calibration.CROWDINGS)
    sought = chosen_labels(words, loaded.labels)
    chosen_words = None if words is None else sought
    bases = [
        StreamSettings({"entropy": 1.0}, smoothing=seconds, crowding=surer)
        for seconds, surer in product(smoothing, crowding)
    ]
    clips = draw([clip for clip in spoken(positives, listed, loaded.labels) if clip[0] in sought], count, seed)
    if not clips:
        folders = ", ".join(folder_name(word) for word in sought if is_word(word))
        raise SettingError(f"{positives} has no clip of a word to calibrate for; expected folders {folders}")
    names = short_names([*negatives, *sounds])
    check_apart([*negatives, *sounds])
    with_words, without = _trace(loaded, clips, names, snr, hop, seed)
    tried = _sweep(metadata, with_words, without, bases, scores, chosen_words, own=per_label, limit=limit)
    chosen = _choose(tried, limit, shown=not as_json)
    curve = choice.frontier(next(points for points in tried if any(point is chosen for point in points)))
    best = [choice.best(points, limit) for points in tried]

    record = stream_record(
        chosen,
        limit,
        method="most hits under the limit on each of the negatives",
        words=chosen_words,
        positives={"clips": len(clips), "from": short_name(str(listed or positives)), "snr": [None, *snr]},
        tried={
            "smoothing": list(smoothing), "score": list(scores), "crowding": list(crowding), "per_label": per_label,
        },
        seed=seed,
        hop=hop,
        sounds=[names[pattern] for pattern in sounds],
    )  # fmt: skip
    without_words = FalseAccepts.of(record["calibration"])
    calibrated = replace(metadata, stream={**(metadata.stream or {}), "after_wake": record} if after_wake else record)
    write_forms(loaded.path, out, calibrated, overwrite=force)
    if plot:
        det_plot(curve, chosen, limit, plot)
    if as_json:
        result = {
            "out": str(out),
            "limit_shown": without_words.shows(limit),
            "chosen": chosen.to_dict(),
            "tried": [point.to_dict() for point in best if point],
            "curve": [point.to_dict() for point in curve],
        }
        click.echo(json.dumps(result, allow_nan=False))
    else:
        _print(best, curve, chosen, limit, out)
        _print_negatives(without_words)
    if not without_words.shows(limit):
        click.echo(f"{limit:g} an hour is {without_words.verdict(limit)}", err=True)
        if metadata.stream and not after_wake and (looser := _looser(StreamSettings.of(metadata), chosen.settings)):
            click.echo(
                f"Caution: {looser} of {loaded.name}, and these recordings are too short to show that this is safe. To "
                f"leave it listening, use {loaded.name} as it is, or calibrate on more speech.",
                err=True,
            )


def _looser(own: "StreamSettings", chosen: "StreamSettings") -> str:
    """In words, the first score whose chosen threshold is above the model's own; empty where none is."""
    for score, threshold in chosen.thresholds.items():
        if threshold > (before := own.thresholds.get(score, 1.0)):
            return f"{score} up to {threshold:.3f} is looser than the {before:.3f}"
    return ""


def _trace(
    model: "KeywordModel",
    clips: Sequence[tuple[str, Path]],
    negatives: Mapping[str, str],
    snr: Sequence[float],
    hop: float,
    seed: int,
) -> tuple[list["Traced"], list["Traced"]]:
    """Run the network over the streams of words, in silence and over the negatives, and over each of the negatives.

    The negatives are patterns, each with the name that its stream gets.
    """
    from kws_edge.tuning.recordings import recordings, trace_negatives, trace_words

    background = recordings(list(negatives))
    with bar("words", len(clips) * (1 + len(snr))) as step:
        with_words = [trace_words(model, clips, "words", hop, seed, step)]
        for decibels in snr:
            name = f"words at {decibels:g} dB"
            stream = trace_words(model, clips, name, hop, seed, step, background=background, snr=decibels)
            with_words.append(stream)
    with bar("negatives", sum(len(recordings([pattern])) for pattern in negatives)) as step:
        return with_words, [
            trace_negatives(model, pattern, hop, step, name=name) for pattern, name in negatives.items()
        ]


def _sweep(
    metadata: "Metadata",
    with_words: Sequence["Traced"],
    without: Sequence["Traced"],
    bases: Sequence["StreamSettings"],
    scores: Sequence[StreamScore],
    words: Sequence[str] | None,
    *,
    own: bool,
    limit: float,
) -> list[list["Point"]]:
    """A trade-off curve for each of the settings with each of the scores."""
    from kws_edge.tuning import calibration

    sets = [SCORES if score == "both" else (score,) for score in scores]
    tries = [
        (calibration.candidates(metadata, with_words, without, base, names, words), base)
        for base, names in product(bases, sets)
    ]
    until = _SHOWN * max(limit, 1)
    with bar("thresholds", sum(len(thresholds) for thresholds, _ in tries)) as step:
        return list(calibration.sweep(metadata, with_words, without, tries, words, own=own, until=until, progress=step))


def _choose(tried: Sequence[Sequence["Point"]], limit: float, *, shown: bool) -> "Point":
    """`choice.choose`; where nothing is within the limit, the curve is printed before the error."""
    from kws_edge.tuning import choice

    try:
        return choice.choose(tried, limit)
    except SettingError:
        if shown:
            _print_curve(choice.frontier(point for points in tried for point in points))
        raise


def _print_curve(curve: Sequence["Point"]) -> None:
    """Print the trade-off of everything that was tried, where none of it is within the limit."""
    if any(point.words.hits for point in curve):
        click.echo(f"The trade-off:\n  {_HEADER}")
        for point in curve:
            click.echo(_row(point, None))


def _print(best: Sequence["Point | None"], curve: Sequence["Point"], chosen: "Point", limit: float, out: Path) -> None:
    click.echo(f"Within {limit:g} false accepts an hour:\n  {_HEADER}")
    for point in best:
        if point:
            click.echo(_row(point, chosen))
    if None in best:
        click.echo(f"  {best.count(None)} other combinations find no word")
    click.echo(f"The trade-off curve of the chosen combination:\n  {_HEADER}")
    for point in curve:
        click.echo(_row(point, chosen))
    click.echo(f"* is the choice, written to {one_line(out)}.")


def _print_negatives(negatives: "FalseAccepts") -> None:
    click.echo("Its false accepts on recordings without the words:")
    for line in negatives.lines():
        click.echo(f"  {line}")


def _row(point: "Point", chosen: "Point | None") -> str:
    words = point.words
    delay = words.delay(0.5)
    return (
        f"{'*' if point is chosen else ' '} {1 - point.miss_rate:7.1%} {words.wrong / words.words:7.1%} "
        f"{point.false_accepts_per_hour:15.2f} {'' if delay is None else f'{delay:.2f} s':>9} "
        f"{point.settings.smoothing:7.2f} s  {_up_to(point.settings)}"
    )


def _up_to(settings: "StreamSettings") -> str:
    """The thresholds in words; with those of single labels, from the lowest to the highest."""
    shown = []
    for score, threshold in settings.thresholds.items():
        values = sorted({threshold, *(own[score] for own in settings.labels.values() if score in own)})
        shown.append(f"{score} " + " to ".join(f"{value:.4g}" for value in dict.fromkeys((values[0], values[-1]))))
    return " and ".join(shown) + (f", crowding {settings.crowding:g}" if settings.crowding else "")
