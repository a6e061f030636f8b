"""Evaluate settings on recordings: hits where words are said, false accepts per hour where none are."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kws_edge.errors import SettingError
from kws_edge.model.metadata import Metadata
from kws_edge.stream.decision import decide
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.evaluation import StreamReport, evaluate
from kws_edge.tuning.traced import Traced


@dataclass(frozen=True, slots=True)
class Point:
    """Results of some settings: `words` on streams of words, `negatives` on each recording without the words.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import candidates, choose, sweep, trace_negatives, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> quiet = [trace_negatives(model, "kws_edge/samples/noise.flac")]
    >>> base = StreamSettings({"entropy": 1.0}, smoothing=0.3)
    >>> tries = [(candidates(model.metadata, said, quiet, base, ["entropy"]), base)]
    >>> point = choose(list(sweep(model.metadata, said, quiet, tries)), 1.0)
    >>> point.words.hits, point.miss_rate, point.false_accepts_per_hour
    (1, 0.0, 0.0)
    """

    settings: StreamSettings
    words: StreamReport
    negatives: dict[str, StreamReport]

    @property
    def false_accepts_per_hour(self) -> float:
        """The rate on the recording without the words where it is highest, so that the others do not dilute it."""
        return max(3600 * report.false_accepts / report.seconds for report in self.negatives.values())

    @property
    def joined(self) -> StreamReport:
        """All recordings without the words together."""
        return sum(self.negatives.values(), StreamReport(0.0))

    @property
    def miss_rate(self) -> float:
        """Share of the words without a hit."""
        return 1 - self.words.hits / self.words.words

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "settings": self.settings.to_dict(),
            "miss_rate": self.miss_rate,
            "false_accepts_per_hour": self.false_accepts_per_hour,
            "words": self.words.to_dict(),
            "negatives": {name: report.to_dict() for name, report in self.negatives.items()},
        }


def assess(
    metadata: Metadata, recordings: Iterable[Traced], settings: StreamSettings, words: Collection[str] | None = None
) -> StreamReport:
    """Results of some settings on recordings, added up; `words` are the labels that give events, None for all.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import assess, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> report = assess(model.metadata, said, StreamSettings.of(model.metadata))
    >>> report.words, report.false_accepts
    (1, 0)
    """
    labels = metadata.labels if words is None else words
    total = StreamReport(0.0)
    for recording in recordings:
        events = decide(metadata, recording.hops, settings, words)
        total += evaluate(events, recording.words, recording.seconds, labels)
    return total


def weigh(
    metadata: Metadata,
    positives: Iterable[Traced],
    negatives: Iterable[Traced],
    settings: StreamSettings,
    words: Collection[str] | None = None,
) -> Point:
    """What some settings give on recordings with words, and on each of those without.

    Raises
    ------
    SettingError : two of those without words have the same name.
    """
    negatives = list(negatives)
    if len({n.name for n in negatives}) < len(negatives):
        listed = ", ".join(n.name for n in negatives)
        raise SettingError(f"recordings without words: {listed}; expected a name of its own for each")
    reports = {n.name: assess(metadata, [n], settings, words) for n in negatives}
    return Point(settings, assess(metadata, positives, settings, words), reports)
