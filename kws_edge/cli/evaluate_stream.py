"""`kws-edge evaluate-stream`: hit rate and false accepts per hour of a stream."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kws_edge.cli.progress import bar
from kws_edge.cli.stream_curves import curves, span
from kws_edge.cli.target import TARGET
from kws_edge.cli.words import word_list
from kws_edge.errors import SettingError
from kws_edge.model.score import STREAM_SCORES, StreamScore

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.evaluation import StreamReport
    from kws_edge.tuning.traced import Traced


class _RatesType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    name = "rates"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            rates = tuple(float(rate) for rate in str(value).split(","))
        except ValueError:
            rates = ()
        if not rates or not all(0 < rate <= 1000 for rate in rates):
            self.fail(f"{value!r}; expected false accepts per hour, above 0 to 1000, such as 0.5,1,2", param, ctx)
        return rates


RATES = _RatesType()

existing_folder = click.Path(exists=True, file_okay=False, path_type=Path)
existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("evaluate-stream")
@click.option("--positives", type=existing_folder, help="Clips of words, as WORD/clip; a stream is made of them.")
@click.option("--list", "listed", type=existing_file, help="Use only these of the clips, such as a testing_list.txt.")
@click.option("--count", type=click.IntRange(1), default=200, show_default=True, help="How many of the clips.")
@click.option(
    "--negatives", multiple=True, metavar="PATH", help="Folder, file or pattern without the words; repeatable."
)
@click.option("--snr", type=float, multiple=True, metavar="DB", help="Also the words over each of the negatives.")
@click.option("--recording", type=existing_file, help="A recording in which words are said, instead of clips.")
@click.option("--labels", type=existing_file, help="Where: lines of start, end (s) and word, separated by tabs.")
@click.option("--words", metavar="A,B", help="Listen for these words only  [default: as `kws-edge listen`]")
@click.option("--wake", metavar="A,B", help="Words that wake: --words count only after one; read below.")
@click.option("--for", "wake_seconds", type=click.FloatRange(1, 60), default=4.0, show_default=True, help="Seconds.")
@click.option("--hop", type=float, default=0.1, show_default=True, help="Seconds between the network's windows.")
@click.option("--score", type=click.Choice(STREAM_SCORES), help="Use the clip thresholds of this score.")
@click.option("--target", type=TARGET, metavar="PERCENT", help="And of this target.")
@click.option("--rates", type=RATES, metavar="A,B", help="What is found where the negatives have 0.5, 1, ... an hour.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="With --rates: draw the curves.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the clips drawn and the pauses.")
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
def evaluate_stream(
    positives: Path | None,
    listed: Path | None,
    count: int,
    negatives: tuple[str, ...],
    snr: tuple[float, ...],
    recording: Path | None,
    labels: Path | None,
    words: str | None,
    wake: str | None,
    wake_seconds: float,
    hop: float,
    score: StreamScore | None,
    target: float | None,
    rates: tuple[float, ...] | None,
    plot: Path | None,
    seed: int,
    model: str | None,
    as_json: bool,
) -> None:
    """Measure hit rate, false accepts per hour and delay on streams, as `kws-edge listen` decides on them.

    Clips of words are put one after the other with pauses of 1 to 3 s, in silence and, with --snr, over each of the
    negatives; clips of other words make a stream of their own. Negatives are joined as they
    are. Every row has its 95 % intervals. Use recordings that the model was neither trained nor calibrated on.

    \b
    kws-edge evaluate-stream --positives speech_commands --list speech_commands/testing_list.txt \\
        --negatives libri_speech/test-other --negatives 'esc10/*/3-*' --snr 10
    kws-edge evaluate-stream --recording kitchen.wav --labels kitchen.txt
    kws-edge evaluate-stream --model yes-no.onnx --words yes,no --positives speech_commands --negatives radio.wav
    kws-edge evaluate-stream --rates 0.5,1,2,5 --plot curves.svg --positives speech_commands --negatives radio.wav

    A label file is what Audacity exports as a label track. FOUND counts words that gave an event of their own label;
    FALSE ACCEPTS are events with a label where no word is, or a second one for the same word. DELAY is from the end of
    the word to the event. --json also counts words, hits and false accepts by label.

    With --wake, as in --wake happy --words yes,no, each command is said after a wake word, and counts if that is heard,
    by the model's settings for after a wake word (`kws-edge calibrate --after-wake`). Every stream has a row for the
    wake words and one for the commands.

    With --rates the model's own thresholds are left aside. For each rate, those are taken at which the negatives,
    joined, have so many false accepts an hour: that tells how well words are told from other speech, whatever the model
    was calibrated for. A table says what is found, in silence and over each of the negatives; --plot draws the curves.
    """
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings, chosen_labels, event_words
    from kws_edge.tuning.points import assess

    if plot and not rates:
        raise click.UsageError("--plot draws what --rates measures; expected both")
    if rates and not (positives and negatives):
        raise click.UsageError("--rates needs --positives, and --negatives on which the rates are counted")
    if wake and (rates or recording or not positives):
        raise click.UsageError("--wake is measured on clips; expected --positives, without --rates and --recording")
    if (recording is None) != (labels is None):
        raise click.UsageError("--recording and --labels go together")
    if not (positives or negatives or recording):
        raise click.UsageError("nothing to measure; expected --positives, --negatives or --recording with --labels")
    if snr and not (positives and negatives):
        raise click.UsageError("--snr needs --positives, and --negatives to put behind them")
    loaded = KeywordModel.load(model)
    settings = StreamSettings.of(loaded.metadata, score=score, target=target)
    chosen = event_words(loaded.metadata, word_list(words), own_settings=score is None and target is None)
    if rates:
        traced = list(_clip_streams(loaded, chosen, positives, listed, count, negatives, snr, hop, seed))
        about = {"model": loaded.name, "hop": hop, "seed": seed, "words_chosen": chosen}
        curves(loaded, traced, len(negatives), settings, chosen, rates, plot, about if as_json else None)
        return
    thresholds = ", ".join(f"{name} up to {t:.4g}" for name, t in settings.thresholds.items())
    header = f"model {loaded.name}: {thresholds}, smoothing {settings.smoothing:g} s, hop {hop:g} s\n{HEADER}"
    streams = _clip_streams(loaded, chosen, positives, listed, count, negatives, snr, hop, seed)
    if recording and labels:
        streams = _recording(loaded, recording, labels, hop)
    rows: Iterator[tuple[str, StreamSettings, StreamReport]] = (
        (stream.name, settings, assess(loaded.metadata, [stream], settings, chosen)) for stream in streams
    )
    if wake and positives:
        waking = chosen_labels(word_list(wake), loaded.labels)
        chosen = [word for word in chosen if word not in waking]
        streams = _pair_streams(loaded, waking, chosen, positives, listed, count, negatives, snr, hop, seed)
        rows = _pair_rows(loaded, streams, waking, chosen, wake_seconds, settings)
    for name, by, report in rows:
        if as_json:
            about = {"model": loaded.name, "stream": name, "hop": hop, "seed": seed, "words_chosen": chosen}
            click.echo(json.dumps({**about, "settings": by.to_dict(), **report.to_dict()}, allow_nan=False))
        else:
            click.echo(f"{header}\n{row(name, report)}" if header else row(name, report))
            header = ""  # it comes with the first row, when nothing was wrong


HEADER = (
    f"{'FOUND':23} {'WRONG':>5} {'NOT SURE':>8} {'MISSED':>6}  {'FALSE ACCEPTS/H':22} {'NOT SURE/H':>10} "
    f"{'DELAY P50':>9} {'P95':>6}  {'MINUTES':>7}  STREAM"
)


def row(name: str, report: "StreamReport") -> str:
    """One line of the table."""
    found = wrong = unsure = missed = ""
    if report.hit_rate:
        found = f"{span(report.hit_rate, 100)} %"
        wrong, unsure, missed = str(report.wrong), str(report.abstained), str(report.missed)
    elif report.unknown:
        wrong, unsure = str(report.unknown_accepted), str(report.unknown - report.unknown_accepted)
    delays = [f"{delay:.2f}" if delay is not None else "" for delay in (report.delay(0.5), report.delay(0.95))]
    return (
        f"{found:23} {wrong:>5} {unsure:>8} {missed:>6}  {span(report.false_accepts_per_hour):22} "
        f"{3600 * report.abstentions / report.seconds:10.1f} {delays[0]:>9} {delays[1]:>6}  "
        f"{report.seconds / 60:7.1f}  {name}"
    )


def _clip_streams(
    model: "KeywordModel",
    words: Sequence[str],
    positives: Path | None,
    listed: Path | None,
    count: int,
    negatives: tuple[str, ...],
    snr: tuple[float, ...],
    hop: float,
    seed: int,
) -> Iterator["Traced"]:
    from kws_edge.tuning.recordings import draw, spoken, trace_words

    if positives:
        clips = spoken(positives, listed)
        known = draw([clip for clip in clips if clip[0] in words], count, seed)
        unknown = draw([clip for clip in clips if clip[0] not in words], count, seed)
        for name, some in ((f"{len(known)} words", known), (f"{len(unknown)} unknown words", unknown)):
            if some:
                with bar(name, len(some)) as step:
                    yield trace_words(model, some, name, hop, seed, step)
        yield from _over(model, known, f"{len(known)} words", negatives, snr, hop, seed)
    yield from _without_words(model, negatives, hop)


def _pair_streams(
    model: "KeywordModel",
    waking: Sequence[str],
    commands: Sequence[str],
    positives: Path,
    listed: Path | None,
    count: int,
    negatives: tuple[str, ...],
    snr: tuple[float, ...],
    hop: float,
    seed: int,
) -> Iterator["Traced"]:
    """Commands with a wake word before each, in silence and over each of the negatives; then the negatives."""
    from kws_edge.tuning.pairs import PAUSES, pairs
    from kws_edge.tuning.recordings import draw, spoken, trace_words

    clips = spoken(positives, listed)
    before = draw([clip for clip in clips if clip[0] in waking], count, seed)
    said = list(pairs(before, draw([clip for clip in clips if clip[0] in commands], count, seed)))
    if not said:
        raise SettingError(f"no pairs in {positives}; expected clips of {', '.join((*waking, *commands))}")
    name = f"{len(said) // 2} pairs"
    with bar(name, len(said)) as step:
        yield trace_words(model, said, name, hop, seed, step, gap=PAUSES)
    yield from _over(model, said, name, negatives, snr, hop, seed, gap=PAUSES)
    yield from _without_words(model, negatives, hop)


def _over(
    model: "KeywordModel",
    clips: Sequence[tuple[str, Path]],
    name: str,
    negatives: Sequence[str],
    snr: Sequence[float],
    hop: float,
    seed: int,
    **more: Any,
) -> Iterator["Traced"]:
    """Words over each of the negatives, at each of the ratios; `more` goes to `trace_words`."""
    from kws_edge.tuning.recordings import recordings, short_name, trace_words

    for decibels, pattern in product(snr, negatives):
        over = f"{name}, {decibels:g} dB over {short_name(pattern)}"
        with bar(over, len(clips)) as step:
            behind = recordings([pattern])
            yield trace_words(model, clips, over, hop, seed, step, background=behind, snr=decibels, **more)


def _without_words(model: "KeywordModel", negatives: Sequence[str], hop: float) -> Iterator["Traced"]:
    from kws_edge.tuning.recordings import recordings, short_name, trace_negatives

    for pattern in negatives:
        with bar(short_name(pattern), len(recordings([pattern]))) as step:
            yield trace_negatives(model, pattern, hop, step)


def _pair_rows(
    model: "KeywordModel",
    streams: Iterable["Traced"],
    waking: Sequence[str],
    commands: Sequence[str],
    seconds: float,
    settings: "StreamSettings",
) -> Iterator[tuple[str, "StreamSettings", "StreamReport"]]:
    """Name, settings and report: of the wake words of each stream, and of the commands after them."""
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.pairs import assess_pairs

    after = StreamSettings.after_wake(model.metadata)
    for stream in streams:
        woken, obeyed = assess_pairs(model.metadata, stream, waking, commands, seconds, settings, after)
        yield f"{stream.name}: wake words", settings, woken
        yield f"{stream.name}: commands after them", after, obeyed


def _recording(model: "KeywordModel", recording: Path, labels: Path, hop: float) -> Iterator["Traced"]:
    from kws_edge.audio.load import read_blocks
    from kws_edge.stream.trace import trace
    from kws_edge.tuning.soundscape import read_labels
    from kws_edge.tuning.traced import Traced

    words = tuple(read_labels(labels))
    yield Traced(recording.name, trace(model, read_blocks(recording), hop), words)
