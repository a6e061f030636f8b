"""The card of a wake word model: what it was made from, how well it works, under which licences."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kws_edge.model.metadata import Metadata
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.false_accepts import SOUNDS, FalseAccepts, duration, interval
from kws_edge.tuning.points import Point
from kws_export.data.credit import NONE, Credit, licence_links
from kws_export.data.pack import Source
from kws_export.texts import UNSTATED, cell
from kws_export.toml import read_toml
from kws_export.training.about import About
from kws_export.voices import Engine
from kws_export.wake.held_out import PEOPLE
from kws_export.wake.material import Material, Saying, hours
from kws_export.wake.settings import WakeSettings

LICENCE = "Apache-2.0"
RECORDED_BY_USER = "recordings that were given with --recordings"
STREAM_SOURCES = Path(__file__).with_name("stream.toml")
USES = {"speech": "speech without the word", "words": "single words", "sounds": "sounds"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a model was made from.

    Attributes
    ----------
    start : the model whose weights it began with.
    command : what makes it again.
    data : one line: the takes of the words.
    takes : of the words, in training.
    voices : whom to name for the engines.
    negatives : one line: hours of speech and sounds.
    sources : of the negatives.
    first : whom to name for the start.
    recordings : what the recordings were, and their licence, as the user says it; empty where there were none.
    held_out : what it was measured on, in words.
    """

    start: str
    command: str
    data: str
    takes: int
    voices: tuple[Credit, ...]
    negatives: str
    sources: tuple[Source, ...]
    first: tuple[Credit, ...]
    recordings: str = ""
    held_out: str = "recordings that it was not trained on"

    @property
    def start_name(self) -> str:
        """The start as it ships."""
        return f"models/{Path(self.start).name}"

    @property
    def about(self) -> About:
        """For the model's file; whoever is to be named for the first weights is added there."""
        return About(self.data, LICENCE, attribution(self.voices, self.sources, self.recordings))

    @property
    def credits(self) -> dict[Credit, str]:
        """Each source once, with what it was used for."""
        unstated = self.recordings == RECORDED_BY_USER
        own = Credit(RECORDED_BY_USER, UNSTATED, UNSTATED) if unstated else Credit.parse(self.recordings)
        recordings = [own] if self.recordings else []
        uses = [
            *((credit, "the word") for credit in recordings),
            *((credit, "the word, near-misses") for credit in self.voices),
            *((source.credit, USES[source.kind]) for source in self.sources),
            *((credit, "the first network") for credit in self.first),
        ]
        used: dict[Credit, dict[str, None]] = {}
        for credit, use in uses:
            used.setdefault(credit, {})[use] = None
        return {credit: ", ".join(what) for credit, what in used.items()}


def attribution(voices: Iterable[Credit], sources: Iterable[Source], recordings: str) -> str:
    """Whom to name: for the engines, for the negatives and for the recordings, as the user says."""
    named = [str(credit) for credit in (*voices, *(source.credit for source in sources))]
    named += [recordings] if recordings else []
    return "; ".join(text.rstrip(".;") for text in named) + "."


def first_sources(start_name: str, metadata: Metadata) -> tuple[Credit, ...]:
    """Whom to name for the start: source by source where its list is known, else all in one."""
    listed = read_toml(STREAM_SOURCES, "a list of sources")
    if metadata.attribution == listed["attribution"]:
        return tuple(Credit(**source) for source in listed["source"])
    return (Credit(f"what `{start_name}` learnt from", NONE, metadata.attribution),)


def provenance(
    settings: WakeSettings,
    engines: Sequence[Engine],
    training: Material,
    held_out: Material,
    sources: Sequence[Source],
    *,
    start: str,
    first: Metadata,
    command: str,
    recordings: str,
) -> Provenance:
    """Count what there is."""
    lines = []
    for label in settings.labels:
        for name, real in (("person", True), ("voice", False)):
            inside, outside = (
                [s for s in material.words if s.label == label and s.real is real] for material in (training, held_out)
            )
            if inside or outside:
                lines.append(f"{label}: {_said(inside, name)} to train with, {_said(outside, name)} held out")
    speech = f"{hours(training.speech):.1f} h of speech to train with, {hours(held_out.speech):.1f} h held out"
    if held_out.single:
        speech += f", and {60 * hours(held_out.single):.0f} min of single words"
    made_from = Provenance(
        start=start,
        command=command,
        data="; ".join(lines),
        takes=len(training.words),
        voices=tuple(engine.credit for engine in engines),
        negatives=speech + f"; near-misses spoken by voices: {len(training.near)} and {len(held_out.near)}",
        sources=tuple(sources),
        first=(),
        recordings=(recordings or RECORDED_BY_USER) if any(s.real for s in training.words) else "",
        held_out=_held_out(training, held_out),
    )
    return replace(made_from, first=first_sources(made_from.start_name, first))


def _held_out(training: Material, held_out: Material) -> str:
    """Who says the words that a model is measured on, beside whom it was trained on."""
    by_people = Counter(s.label for s in held_out.words if s.real)
    people = {s.speaker for s in held_out.words if s.real}
    voices = {s.speaker for s in held_out.words if not s.real and by_people[s.label] < PEOPLE}
    who = []
    if people:
        same = people & {s.speaker for s in training.words if s.real}
        who.append("other takes of people that it was trained on" if same else "people that it was not trained on")
    if voices:
        halves = any("+" in voice for voice in voices)
        who.append("other voices" + (", which may be half of a blend that it was trained on" if halves else ""))
    return f"{'; '.join(who)}; and other recordings"


def _said(sayings: Sequence[Saying], speaker: str) -> str:
    many = {"person": "people", "voice": "voices"}[speaker]
    speakers = len({s.speaker for s in sayings})
    return f"{len(sayings)} takes by {speakers} {speaker if speakers == 1 else many}"


def wake_card(
    metadata: Metadata,
    size: int,
    settings: WakeSettings,
    made_from: Provenance,
    point: Point,
    conditions: Mapping[str, StreamReport],
    apart: Mapping[str, StreamReport],
) -> str:
    """Write the card, as markdown."""
    rows = _measured(settings, point, conditions, apart)
    delay = point.words.delay(0.5)
    recordings = (
        []
        if made_from.recordings
        else [
            "It was trained and measured without recordings of people: only speech synthesisers say the word. "
            "Expect to miss people more often than the table says.",
            "",
        ]
    )
    sources = [
        f"| {cell(credit.name)} | {cell(credit.licence)} | {cell(credit.by)} | {use} |"
        for credit, use in made_from.credits.items()
    ]
    links = licence_links(made_from.credits)
    return "\n".join(
        [
            f"# {metadata.name}",
            "",
            f"Listens for {' and '.join(f'**{w}**' for w in settings.labels)} in a stream, and ignores "
            f"everything else. {metadata.training['parameters']:,} parameters, {size / 1000:.0f} kB.",
            "",
            *recordings,
            "Made by:",
            "",
            f"    {made_from.command}",
            "",
            "## What it does",
            "",
            f"Measured on {made_from.held_out}. The epoch and the threshold were chosen on them, so "
            "expect slightly less elsewhere: measure with `kws-edge evaluate-stream`.",
            "",
            "| | | |",
            "| --- | --- | --- |",
            *rows,
            f"| median delay after the word's end | {'–' if delay is None else f'{delay:.2f} s'} | |",
            "",
            f"The trade-off of misses and false accepts: {metadata.name}.svg.",
            "",
            "## Made from",
            "",
            f"- {made_from.data}",
            f"- {made_from.negatives}",
            f"- started from `{made_from.start_name}`; {settings.epochs} epochs of {settings.steps} steps, of which "
            f"{metadata.training['best_epoch']} is the best; seed {settings.seed}",
            "",
            f"The first network is `{made_from.start_name}`.",
            "",
            "| source | licence | by | used for |",
            "| --- | --- | --- | --- |",
            *sources,
            "",
            "## Limits",
            "",
            "Not for safety-critical use. People, rooms and microphones unlike those above may be missed more often.",
            "",
            "## Licence and attribution",
            "",
            f"Weights: {metadata.licence}. Attribution of each source: the table above"
            + (f" ({links})" if links else "")
            + ". The recordings were changed for training: resampled, cut, mixed and placed in simulated rooms.",
            "",
        ]
    )


def _measured(
    settings: WakeSettings, point: Point, conditions: Mapping[str, StreamReport], apart: Mapping[str, StreamReport]
) -> list[str]:
    """The rows of the table of what it does."""
    rows = [
        f"| found {condition} | {_percent(report.hit_rate)} | {report.words} words |"
        for condition, report in conditions.items()
    ]
    if len(settings.labels) > 1:
        counts = point.words
        rows += [f"| of these, {w} | {counts.hits_of[w] / max(1, counts.words_of[w]):.1%} | |" for w in settings.labels]
    verdict = FalseAccepts(point.negatives, [SOUNDS]).verdict(settings.limit)
    rows += [
        f"| false accepts, {name} | {interval(report)} | {report.false_accepts} in {duration(report.seconds)} |"
        for name, report in point.negatives.items()
    ]
    rows.append(f"| limit of {settings.limit:g} an hour on false accepts | {verdict} | |")
    rows += [
        f"| events on {name}, said in succession, for which there is no limit | {report.false_accepts} | "
        f"in {duration(report.seconds)} |"
        for name, report in apart.items()
    ]
    return rows


def _percent(rate: object) -> str:
    from kws_edge.tuning.evaluation import Rate

    return f"{rate.value:.1%} (95 %: {rate.low:.1%} to {rate.high:.1%})" if isinstance(rate, Rate) else "–"
