"""`kws-edge evaluate-stream`: hit rate and false accepts per hour of a stream."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kws_edge.cli.options import (
    RATES,
    SNR,
    TARGET,
    WORDS,
    Number,
    existing_file,
    existing_folder,
    hop_option,
    list_option,
    model_option,
    seed_option,
)
from kws_edge.cli.progress import bar
from kws_edge.cli.stream_curves import curves, span
from kws_edge.errors import SettingError
from kws_edge.model.score import STREAM_SCORES, StreamScore
from kws_edge.text import one_line

if TYPE_CHECKING:
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings
    from kws_edge.tuning.evaluation import StreamReport
    from kws_edge.tuning.traced import Traced


@click.command("evaluate-stream")
@click.option(
    "--positives", type=existing_folder, metavar="FOLDER", help="Clips of words, WORD/CLIP, to compose streams of."
)
@list_option
@click.option("--count", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Clips to draw.")
@click.option(
    "--negatives",
    multiple=True,
    metavar="PATH",
    help="Recordings without the words: a folder, file or pattern; repeatable.",
)
@click.option(
    "--snr",
    type=SNR,
    multiple=True,
    metavar="DB",
    help="Also mix the words over the negatives at this ratio; repeatable.",
)
@click.option("--recording", type=existing_file, metavar="FILE", help="A recording of words, instead of --positives.")
@click.option(
    "--labels",
    type=existing_file,
    metavar="FILE",
    help="Its labels: start and end in seconds and the word, tab-separated.",
)
@click.option(
    "--words",
    type=WORDS,
    metavar="WORD,...",
    help="Listen for these words only  [default: those that the model is calibrated for]",
)
@click.option("--wake", type=WORDS, metavar="WORD,...", help="Say one of these wake words before each word; see above.")
@click.option(
    "--for",
    "wake_seconds",
    type=Number(1, 60),
    metavar="SECONDS",
    help="How long words count after a wake word  [default: 4]",
)
@click.option("--score", type=click.Choice(STREAM_SCORES), help="Use the model's thresholds for clips by this score.")
@click.option(
    "--target", type=TARGET, metavar="PERCENT", help="Use the model's thresholds for clips at this accepted accuracy."
)
@click.option(
    "--rates",
    type=RATES,
    metavar="RATE,...",
    help="Use the thresholds that give these false accepts per hour; see above.",
)
@hop_option
@seed_option
@model_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="With --rates: plot the curves.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each row, for scripts.")
def evaluate_stream(
    positives: Path | None,
    listed: Path | None,
    count: int,
    negatives: tuple[str, ...],
    snr: tuple[float, ...],
    recording: Path | None,
    labels: Path | None,
    words: list[str] | None,
    wake: list[str] | None,
    wake_seconds: float | None,
    hop: float,
    score: StreamScore | None,
    target: float | None,
    rates: tuple[float, ...] | None,
    plot: Path | None,
    seed: int,
    model: str | None,
    as_json: bool,
) -> None:
    """Measure words found and false accepts on streams.

    Clips of words are joined with pauses of 1 to 3 s, in silence and, with --snr, over each of the negatives. Clips of
    words that are not listened for make another stream, and the negatives alone one each. Decisions are those of
    `kws-edge listen`. Rates have 95 % intervals. Use recordings on which the model was neither trained nor calibrated.

    \b
    kws-edge evaluate-stream --positives speech_commands --list speech_commands/testing_list.txt \\
        --negatives libri_speech/test-other --negatives 'esc10/*/3-*' --snr 10
    kws-edge evaluate-stream --recording kitchen.wav --labels kitchen.txt
    kws-edge evaluate-stream --model yes-no.onnx --words yes,no --positives speech_commands --negatives radio.wav

    FOUND is the share of words that gave an event with their own label. FALSE ACCEPTS are events with a label where no
    such word is, or a second event for the same word. DELAY is the time from the end of the word to the event. --json
    also has the counts for each label. --labels reads what Audacity exports as a label track.

    With --wake, as in --wake happy --words yes,no, each word follows a wake word, and is found only if the wake word
    is. It is decided by the model's thresholds for commands (`kws-edge calibrate --after-wake`), or by those that
    --score and --target choose. Each stream gets a row for the wake words and one for the commands.

    --rates ignores the model's thresholds. For each rate it takes the thresholds that give so many false accepts an
    hour on all negatives together, and shows how many words are found with them. That compares models whatever they
    were calibrated for:

    \b
    kws-edge evaluate-stream --rates 0.5,1,2,5 --plot curves.svg --positives speech_commands --negatives radio.wav

    Exit status: 0 success; 2 wrong usage, or a model, setting or recording that cannot be used.
    """
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.settings import StreamSettings, chosen_labels, commands_of, event_words
    from kws_edge.stream.wake import WAKE_SECONDS
    from kws_edge.svg import check_name
    from kws_edge.tuning.points import assess
    from kws_edge.tuning.recordings import check_apart

    _check_usage(
        positives=positives, listed=listed, negatives=negatives, snr=snr, recording=recording, labels=labels,
        wake=wake, wake_seconds=wake_seconds, rates=rates, plot=plot,
    )  # fmt: skip
    if plot:
        check_name(plot)
    loaded = KeywordModel.load(model)
    check_apart(negatives)
    settings = StreamSettings.of(loaded.metadata, score=score, target=target)
    own = score is None and target is None
    chosen = event_words(loaded.metadata, words, own_settings=own, after_wake=wake is not None)
    composed = _Streams(loaded, positives, listed, count, negatives, snr, hop, seed)
    if rates:
        traced = list(composed.of_words(chosen))
        about = {"model": loaded.name, "hop": hop, "seed": seed, "words_chosen": chosen}
        curves(loaded, traced, len(negatives), settings, chosen, rates, plot, about if as_json else None)
        return
    after = settings  # as for `kws-edge listen`, a score or target is that of the commands, not of the wake word
    if wake is not None:
        after = StreamSettings.after_wake(loaded.metadata) if own else settings
        settings = StreamSettings.of(loaded.metadata)
    thresholds = ", ".join(f"{name} up to {t:.4g}" for name, t in settings.thresholds.items())
    header = f"model {loaded.name}: {thresholds}, smoothing {settings.smoothing:g} s, hop {hop:g} s\n{HEADER}"
    streams = composed.of_words(chosen)
    if recording and labels:
        streams = chain(_recording(loaded, recording, labels, hop), streams)
    rows: Iterator[tuple[str, StreamSettings, StreamReport]] = (
        (stream.name, settings, assess(loaded.metadata, [stream], settings, chosen)) for stream in streams
    )
    if wake is not None and positives:
        waking = chosen_labels(wake, loaded.labels)
        chosen = commands_of(chosen, waking, loaded.labels)
        rows = _pair_rows(
            loaded, composed.of_pairs(waking, chosen), waking, chosen, wake_seconds or WAKE_SECONDS, settings, after
        )
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
        wrong, unsure = str(report.unknown_accepted), str(report.unknown_abstained)
    delays = [f"{delay:.2f}" if delay is not None else "" for delay in (report.delay(0.5), report.delay(0.95))]
    return (
        f"{found:23} {wrong:>5} {unsure:>8} {missed:>6}  {span(report.false_accepts_per_hour):22} "
        f"{3600 * report.abstentions / report.seconds:10.1f} {delays[0]:>9} {delays[1]:>6}  "
        f"{report.seconds / 60:7.1f}  {name}"
    )


def _check_usage(
    *,
    positives: Path | None,
    listed: Path | None,
    negatives: Sequence[str],
    snr: Sequence[float],
    recording: Path | None,
    labels: Path | None,
    wake: Sequence[str] | None,
    wake_seconds: float | None,
    rates: Sequence[float] | None,
    plot: Path | None,
) -> None:
    """Refuse options that do not go together."""
    problems = (
        ("--plot draws the curves of --rates; add --rates", plot and not rates),
        (
            "--rates needs --positives, and --negatives to count false accepts on",
            rates and not (positives and negatives),
        ),
        (
            "--wake needs --positives, and cannot be used with --rates or --recording",
            wake is not None and bool(rates or recording or not positives),
        ),
        ("--for says how long words count after a wake word; add --wake", wake_seconds is not None and wake is None),
        ("--recording and --labels go together", (recording is None) != (labels is None)),
        ("--recording is measured instead of --positives; give one of them", recording and positives),
        ("--list names clips of --positives; add --positives", listed and not positives),
        (
            "nothing to measure; give --positives, --negatives, or --recording with --labels",
            not (positives or negatives or recording),
        ),
        ("--snr needs --positives, and --negatives to mix them with", snr and not (positives and negatives)),
    )
    for problem, there in problems:
        if there:
            raise click.UsageError(problem)


@dataclass(frozen=True, slots=True)
class _Streams:
    """The streams that are composed of clips, and the negatives, as the command's options say, through the network."""

    model: "KeywordModel"
    positives: Path | None
    listed: Path | None
    count: int
    negatives: Sequence[str]
    snr: Sequence[float]
    hop: float
    seed: int

    def of_words(self, words: Sequence[str]) -> Iterator["Traced"]:
        """These words in silence, the other words, these over each of the negatives; then the negatives."""
        from kws_edge.tuning.recordings import draw, spoken, trace_words

        if self.positives:
            clips = spoken(self.positives, self.listed, self.model.labels)
            known = draw([clip for clip in clips if clip[0] in words], self.count, self.seed)
            unknown = draw([clip for clip in clips if clip[0] not in words], self.count, self.seed)
            for name, some in ((f"{len(known)} words", known), (f"{len(unknown)} unknown words", unknown)):
                if some:
                    with bar(name, len(some)) as step:
                        yield trace_words(self.model, some, name, self.hop, self.seed, step)
            yield from self._over_negatives(known, f"{len(known)} words")
        yield from self._negatives_alone()

    def of_pairs(self, waking: Sequence[str], commands: Sequence[str]) -> Iterator["Traced"]:
        """Commands with a wake word before each, in silence and over each of the negatives; then the negatives."""
        from kws_edge.tuning.pairs import PAUSES, pairs
        from kws_edge.tuning.recordings import draw, spoken, trace_words

        assert self.positives is not None  # or --wake is wrong usage
        clips = spoken(self.positives, self.listed, self.model.labels)
        before = draw([clip for clip in clips if clip[0] in waking], self.count, self.seed)
        said = list(pairs(before, draw([clip for clip in clips if clip[0] in commands], self.count, self.seed)))
        if not said:
            raise SettingError(f"no pairs in {self.positives}; expected clips of {', '.join((*waking, *commands))}")
        name = f"{len(said) // 2} pairs"
        with bar(name, len(said)) as step:
            yield trace_words(self.model, said, name, self.hop, self.seed, step, gap=PAUSES)
        yield from self._over_negatives(said, name, gap=PAUSES)
        yield from self._negatives_alone()

    def _over_negatives(self, clips: Sequence[tuple[str, Path]], name: str, **more: Any) -> Iterator["Traced"]:
        """Clips over each of the negatives, at each of the ratios; `more` goes to `trace_words`."""
        from kws_edge.tuning.recordings import recordings, short_names, trace_words

        for snr, (pattern, noise) in product(self.snr, short_names(self.negatives).items()):
            over, behind = f"{name}, {snr:g} dB over {noise}", recordings([pattern])
            with bar(over, len(clips)) as step:
                yield trace_words(
                    self.model, clips, over, self.hop, self.seed, step, background=behind, snr=snr, **more
                )

    def _negatives_alone(self) -> Iterator["Traced"]:
        from kws_edge.tuning.recordings import recordings, short_names, trace_negatives

        for pattern, name in short_names(self.negatives).items():
            with bar(name, len(recordings([pattern]))) as step:
                yield trace_negatives(self.model, pattern, self.hop, step, name=name)


def _pair_rows(
    model: "KeywordModel",
    streams: Iterable["Traced"],
    waking: Sequence[str],
    commands: Sequence[str],
    seconds: float,
    settings: "StreamSettings",
    after: "StreamSettings",
) -> Iterator[tuple[str, "StreamSettings", "StreamReport"]]:
    """Name, settings and report: of the wake words of each stream, and of the commands after them."""
    from kws_edge.tuning.pairs import assess_pairs

    for stream in streams:
        woken, obeyed = assess_pairs(model.metadata, stream, waking, commands, seconds, settings, after)
        yield f"{stream.name}: wake words", settings, woken
        yield f"{stream.name}: commands after them", after, obeyed


def _recording(model: "KeywordModel", recording: Path, labels: Path, hop: float) -> Iterator["Traced"]:
    from kws_edge.audio.load import read_blocks
    from kws_edge.tuning.soundscape import read_labels
    from kws_edge.tuning.traced import trace_stream

    words = read_labels(labels)
    blocks = read_blocks(recording)
    yield trace_stream(
        model, chain([(next(blocks), words)], ((block, []) for block in blocks)), one_line(recording.name), hop
    )
