"""`kws-edge calibrate`: choose a stream's thresholds from recordings, and write them into a copy of the model."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.evaluate_stream import existing_file, existing_folder
from kws_edge.cli.progress import bar
from kws_edge.cli.words import word_list
from kws_edge.errors import SettingError
from kws_edge.model.score import SCORES, STREAM_SCORES, StreamScore

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.false_accepts import FalseAccepts
    from kws_edge.tuning.points import Point
    from kws_edge.tuning.traced import Traced

_SHOWN = 20
"""The curve ends at so many times the limit, or so many false accepts per hour."""
_LIMIT, _AFTER_WAKE_LIMIT = 0.5, 60.0
_HEADER = f"{'FOUND':>7} {'WRONG':>7} {'FALSE ACCEPTS/H':>15} {'DELAY P50':>9} {'SMOOTHING':>9}  UP TO"


@click.command()
@click.option(
    "--negatives",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Speech in which none of the words is said: a folder, file or pattern; repeatable.",
)
@click.option(
    "--sounds",
    multiple=True,
    metavar="PATH",
    help="Recordings without speech; the limit holds on them too; repeatable.",
)
@click.option("--positives", type=existing_folder, required=True, help="Clips of words, as WORD/clip.")
@click.option("--list", "listed", type=existing_file, help="Use only these of the clips, as a validation_list.txt.")
@click.option("--words", metavar="A,B", help="Calibrate for these words only  [default: all of the model's]")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The copy to write, NAME.onnx.")
@click.option("--force", is_flag=True, help="Write over it where it exists.")
@click.option(
    "--false-accepts-per-hour",
    "limit",
    type=click.FloatRange(0),
    help="The most on each of the negatives, all words together  [default: 0.5; with --after-wake 60]",
)
@click.option("--count", type=click.IntRange(1), default=500, show_default=True, help="How many of the clips.")
@click.option("--snr", type=float, multiple=True, default=(10.0,), show_default=True, help="Words over negatives, dB.")
@click.option(
    "--smoothing",
    type=float,
    multiple=True,
    default=(0.3, 0.5),
    show_default=True,
    help="Seconds to try; repeatable.",
)
@click.option(
    "--score",
    "scores",
    type=click.Choice(STREAM_SCORES),
    multiple=True,
    default=("entropy", "vacuity"),
    show_default=True,
    help="Uncertainty to try; repeatable. With both, both must be low.",
)
@click.option(
    "--crowding",
    type=click.FloatRange(0, 20),
    multiple=True,
    help="How much surer within sound as loud; repeatable  [default: 0 and 8; with --after-wake 0]",
)
@click.option("--after-wake", is_flag=True, help="Calibrate what counts after a wake word instead; read below.")
@click.option("--per-label", is_flag=True, help="Also try thresholds of their own for the words; read below first.")
@click.option("--hop", type=float, default=0.1, show_default=True, help="Seconds between the network's windows.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the clips drawn and the pauses.")
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw the trade-off curve.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with what was tried, the curve and the choice.")
def calibrate(
    negatives: tuple[str, ...],
    sounds: tuple[str, ...],
    positives: Path,
    listed: Path | None,
    words: str | None,
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
    """Choose a stream's thresholds: the most hits within a limit of false accepts per hour.

    For every --smoothing and --score all thresholds are tried. Of those that hold the limit on each of the negatives,
    the one with the most hits is taken: on words in silence and, at each --snr, over all negatives. Longer smoothing
    answers later, so the shortest is taken that finds as many to within chance. Two tables are printed: what each
    smoothing and score reach within the limit, and for the chosen ones the trade-off curve, what is found and what it
    costs. Then come the false accepts on each of the negatives, with 95 % intervals. The copy says what it was
    calibrated on; the model's own file stays as it is.

    \b
    kws-edge calibrate --positives speech_commands --list speech_commands/validation_list.txt \\
        --negatives my_kitchen/ --negatives radio.wav --false-accepts-per-hour 0.5 --out mine.onnx
    kws-edge listen --model mine.onnx

    For a few words, the limit is on false accepts of these alone, and more of them are found; `kws-edge listen`
    then listens for these:

    \b
    kws-edge calibrate --words yes,no --positives speech_commands --negatives my_kitchen/ --out yes-no.onnx
    kws-edge listen --model yes-no.onnx

    Use recordings in which none of the words is said, which the model was not trained on (those look too good), and
    others than those it is judged by: `kws-edge evaluate-stream --model mine.onnx`.

    How long the negatives must be: a recording without a single false accept shows, at 95 %, at most 3.7 an hour if it
    lasts an hour, and 17 if it lasts 13 minutes. To show 0.5 an hour takes 7.4 hours of --negatives, all together.
    Where yours are too short for the limit, the command says so, and the copy too; the threshold is then the best guess
    that they allow. Give recordings without speech, such as a vacuum cleaner, by --sounds: they hold the limit as well,
    but show nothing about speech, from which nearly all false accepts come.

    A command is said on its own; speech goes on. With --crowding a word must be surer for each second, of the last 2.5,
    in which there was other sound as loud, and may be less sure on its own: more is found at the same number of false
    accepts, in quiet and over sound that is less loud than the words. What then fires are single words of other talk:
    have some among the negatives. Choose it yourself with, say, --crowding 3; 0 leaves it out.

    --after-wake calibrates the commands of `kws-edge listen --wake`, which count only in the seconds after a wake word,
    and may be less sure for it: the limit is then on false accepts per hour of being awake. Give it a model that was
    calibrated as above; its own settings stay, and the copy holds both:

    \b
    kws-edge calibrate --after-wake --model mine.onnx --positives speech_commands --negatives radio.wav --out both.onnx
    kws-edge listen --model both.onnx --wake happy --then yes,no

    --per-label shares the limit out among the words, so that one that fires by mistake more often than the rest does
    not hold them down. It takes hours of negatives to tell chance from habit: on minutes of speech it found more and
    fired more than the limit elsewhere, which was no better than a higher limit for all.
    """
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.onnx_file import check_target
    from kws_edge.stream.settings import StreamSettings, chosen_labels
    from kws_edge.svg import check_name
    from kws_edge.tuning import calibration, choice
    from kws_edge.tuning.false_accepts import FalseAccepts
    from kws_edge.tuning.plot import det_plot
    from kws_edge.tuning.record import stream_record, write_forms
    from kws_edge.tuning.recordings import draw, short_name, spoken

    loaded = KeywordModel.load(model)
    metadata = loaded.metadata
    check_target(loaded.path, out, overwrite=force)
    if plot:
        check_name(plot)
    if after_wake and not metadata.stream:
        raise SettingError(f"model {loaded.name} is not calibrated on streams; expected one that is, for --after-wake")
    limit = (_AFTER_WAKE_LIMIT if after_wake else _LIMIT) if limit is None else limit
    crowding = crowding or ((0.0,) if after_wake else calibration.CROWDINGS)
    sought = chosen_labels(word_list(words), loaded.labels)
    chosen_words = None if words is None else sought
    bases = [
        StreamSettings({"entropy": 1.0}, smoothing=seconds, crowding=surer)
        for seconds, surer in product(smoothing, crowding)
    ]
    clips = draw([clip for clip in spoken(positives, listed) if clip[0] in sought], count, seed)
    if not clips:
        raise SettingError(f"no word of the model in {positives}; expected folders {', '.join(sought)}")
    with_words, without = _trace(loaded, clips, (*negatives, *sounds), snr, hop, seed)
    sets = [SCORES if score == "both" else (score,) for score in scores]
    tries = [
        (calibration.candidates(metadata, with_words, without, base, names, chosen_words), base)
        for base, names in product(bases, sets)
    ]
    with bar("thresholds", sum(len(thresholds) for thresholds, _ in tries)) as step:
        until = _SHOWN * max(limit, 1)
        tried = list(
            calibration.sweep(
                metadata, with_words, without, tries, chosen_words, own=per_label, until=until, progress=step
            )
        )
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
        sounds=[short_name(pattern) for pattern in sounds],
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


def _trace(
    model: "KeywordModel",
    clips: Sequence[tuple[str, Path]],
    negatives: Sequence[str],
    snr: Sequence[float],
    hop: float,
    seed: int,
) -> tuple[list["Traced"], list["Traced"]]:
    """Run the network over the streams of words, in silence and over the negatives, and over each of the negatives."""
    from kws_edge.tuning.recordings import recordings, trace_negatives, trace_words

    background = recordings(negatives)
    with bar("words", len(clips) * (1 + len(snr))) as step:
        with_words = [trace_words(model, clips, "words", hop, seed, step)]
        for decibels in snr:
            name = f"words at {decibels:g} dB"
            stream = trace_words(model, clips, name, hop, seed, step, background=background, snr=decibels)
            with_words.append(stream)
    with bar("negatives", sum(len(recordings([pattern])) for pattern in negatives)) as step:
        return with_words, [trace_negatives(model, pattern, hop, step) for pattern in negatives]


def _choose(tried: Sequence[Sequence["Point"]], limit: float, *, shown: bool) -> "Point":
    """`choice.choose`; where nothing will do, the curve is printed first."""
    from kws_edge.tuning import choice

    try:
        return choice.choose(tried, limit)
    except SettingError:
        if shown:
            _print_curve(choice.frontier(point for points in tried for point in points))
        raise


def _print_curve(curve: Sequence["Point"]) -> None:
    """The trade-off of all that was tried, where none of it will do."""
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
        click.echo(f"  no word is found by {best.count(None)} more")
    click.echo(f"The trade-off of the chosen one:\n  {_HEADER}")
    for point in curve:
        click.echo(_row(point, chosen))
    click.echo(f"* is what {out} holds now.")


def _print_negatives(negatives: "FalseAccepts") -> None:
    click.echo("False accepts of the chosen one, where none of the words is said:")
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
