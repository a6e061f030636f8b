"""What a wake word model was made from: takes, voices, negatives and the first network, and whom to name for them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kws_edge.model.metadata import Metadata
from kws_export.data.credit import NONE, Credit
from kws_export.data.sources import Source
from kws_export.texts import UNSTATED
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
