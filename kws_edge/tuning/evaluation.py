"""Match a stream's events to the words that were said, and count outcomes, with 95 % intervals.

An event answers a word where the two overlap in time. Each event answers one word, and each word has one outcome: the
first event of its own label makes it a hit; else the first of another label makes it wrong; else an abstention makes
it abstained; else it is missed. An event with a label that answers no word is a false accept, also where it is the
second of one word.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from kws_edge.errors import SettingError
from kws_edge.stream.events import Event
from kws_edge.tuning.soundscape import Word

CONFIDENCE: Final = 0.95


class Outcome(StrEnum):
    """What became of a word."""

    HIT = "hit"
    WRONG = "wrong"
    ABSTAINED = "abstained"
    MISSED = "missed"


class Rate(NamedTuple):
    """A measured rate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class WordOutcome(NamedTuple):
    """A word, its outcome, and the event that made it; None where it was missed."""

    word: Word
    outcome: Outcome
    event: Event | None


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Counts over one or more streams; `+` adds them up.

    Attributes
    ----------
    seconds : duration of the streams.
    hits, wrong, abstained, missed : outcomes for the words that are labels of the model.
    delays : of the hits, seconds from the end of the word to the decision; negative if the decision came first.
    unknown, unknown_accepted, unknown_abstained : words that are not labels, and how many of them got an event with a
        label and one without. For the others there was none, as there should be.
    false_accepts : events with a label that belong to no such word, including those at unknown words.
    abstentions : events without a label where no word was said.
    words_of, hits_of, false_accepts_of : label → its words, hits and false accepts.

    Examples
    --------
    >>> from kws_edge.tuning import StreamReport
    >>> hour = StreamReport(seconds=3600, hits=9, missed=1, false_accepts=2)
    >>> hour.hit_rate.value, hour.false_accepts_per_hour.value
    (0.9, 2.0)
    >>> (hour + hour).hits
    18
    """

    seconds: float
    hits: int = 0
    wrong: int = 0
    abstained: int = 0
    missed: int = 0
    delays: tuple[float, ...] = ()
    unknown: int = 0
    unknown_accepted: int = 0
    unknown_abstained: int = 0
    false_accepts: int = 0
    abstentions: int = 0
    words_of: Counter[str] = field(default_factory=Counter)
    hits_of: Counter[str] = field(default_factory=Counter)
    false_accepts_of: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "StreamReport") -> "StreamReport":
        """Both together."""
        return StreamReport(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def words(self) -> int:
        """Number of words that could be found."""
        return self.hits + self.wrong + self.abstained + self.missed

    @property
    def hit_rate(self) -> Rate | None:
        """Hits per word, with Wilson's interval; None if there are no words."""
        return rate_of(self.hits, self.words) if self.words else None

    @property
    def false_accepts_per_hour(self) -> Rate:
        """With the exact interval of a Poisson process."""
        return per_hour(self.false_accepts, self.seconds)

    def delay(self, quantile: float) -> float | None:
        """A quantile, 0 to 1, of the delays in seconds; None if there are no hits."""
        return float(np.quantile(self.delays, quantile)) if self.delays else None

    def to_dict(self) -> dict[str, Any]:
        """Counts, rates with their intervals, and delays, as plain JSON types."""
        outcomes = ("hits", "wrong", "abstained", "missed")
        others = ("unknown", "unknown_accepted", "unknown_abstained", "false_accepts", "abstentions")
        rate = self.hit_rate
        return {
            "seconds": self.seconds,
            "words": self.words,
            **{name: getattr(self, name) for name in (*outcomes, *others)},
            "hit_rate": rate._asdict() if rate else None,
            "false_accepts_per_hour": self.false_accepts_per_hour._asdict(),
            "delay": {"p50": self.delay(0.5), "p95": self.delay(0.95)},
            "labels": {
                label: {
                    "words": self.words_of[label],
                    "hits": self.hits_of[label],
                    "false_accepts": self.false_accepts_of[label],
                }
                for label in sorted(self.words_of | self.false_accepts_of)
            },
        }


def match(events: Sequence[Event], words: Iterable[Word]) -> tuple[list[WordOutcome], list[Event]]:
    """Answer every word by the rule of this module: (one answer per word, the events that answer none)."""
    left = list(events)
    waiting = sorted(words, key=lambda word: (word.start, word.end))
    answers: list[WordOutcome] = []
    rules: tuple[tuple[Outcome, Callable[[Event, Word], bool]], ...] = (
        (Outcome.HIT, lambda event, word: event.label == word.label),
        (Outcome.WRONG, lambda event, word: event.label is not None),
        (Outcome.ABSTAINED, lambda event, word: event.label is None),
    )
    for outcome, answers_word in rules:
        unanswered = []
        for word in waiting:
            event = next((e for e in left if _overlap(e, word) and answers_word(e, word)), None)
            if event is None:
                unanswered.append(word)
            else:
                left.remove(event)
                answers.append(WordOutcome(word, outcome, event))
        waiting = unanswered
    answers += [WordOutcome(word, Outcome.MISSED, None) for word in waiting]
    return sorted(answers, key=lambda answer: answer.word.start), left


def evaluate(events: Sequence[Event], words: Iterable[Word], seconds: float, labels: Collection[str]) -> StreamReport:
    """Count the outcomes of one stream.

    Parameters
    ----------
    events : those of the stream, times rising.
    words : what was said in it; none for a recording without words.
    seconds : the length of the stream.
    labels : the words that were to be found; others are unknown.

    Raises
    ------
    SettingError : a length that is not above 0.
    """
    if not 0 < seconds < math.inf:
        raise SettingError(f"a stream of {seconds} s; expected more than 0")
    answers, left = match(events, words)
    known = [answer for answer in answers if answer.word.label in labels]
    unknown = [answer for answer in answers if answer.word.label not in labels]
    count = {outcome: sum(answer.outcome is outcome for answer in known) for outcome in Outcome}
    accepted = [a.event.label for a in unknown if a.event and a.event.label is not None]
    false_accepts = accepted + [event.label for event in left if event.label is not None]
    return StreamReport(
        seconds=seconds,
        hits=count[Outcome.HIT],
        wrong=count[Outcome.WRONG],
        abstained=count[Outcome.ABSTAINED],
        missed=count[Outcome.MISSED],
        delays=tuple(a.event.time - a.word.end for a in known if a.event and a.outcome is Outcome.HIT),
        unknown=len(unknown),
        unknown_accepted=len(accepted),
        unknown_abstained=sum(answer.outcome is Outcome.ABSTAINED for answer in unknown),
        false_accepts=len(false_accepts),
        abstentions=sum(event.label is None for event in left),
        words_of=Counter(answer.word.label for answer in known),
        hits_of=Counter(answer.word.label for answer in known if answer.outcome is Outcome.HIT),
        false_accepts_of=Counter(false_accepts),
    )


def rate_of(count: int, total: int) -> Rate:
    """A share of a total above 0, with Wilson's score interval.

    Source: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    p, n = count / total, total
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Rate(p, low if count else 0.0, high if count < total else 1.0)


def per_hour(count: int, seconds: float) -> Rate:
    """A count over a time, per hour, with the exact (Garwood's) interval of a Poisson process.

    Source: F. Garwood 1936, "Fiducial limits for the Poisson distribution".
    """
    tail = (1 - CONFIDENCE) / 2
    low = _poisson_mean(count - 1, 1 - tail) if count else 0.0
    high = _poisson_mean(count, tail)
    return Rate(*(3600 / seconds * value for value in (count, low, high)))


def seconds_to_show(rate: float) -> float:
    """How long a recording without a false accept must be to show, at 95 %, at most so many per hour; inf for 0.

    That is 3.7 hours over the rate: the rule of three, for the interval of `per_hour`, which has two sides.
    """
    return 3600 * per_hour(0, 3600).high / rate if rate > 0 else math.inf


def _poisson_mean(count: int, probability: float) -> float:
    """The mean at which a Poisson count is at most `count` with this probability, by bisection."""
    i = np.arange(count + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(i[1:]))])
    low, high = 0.0, count + 20 * math.sqrt(count + 1)
    for _ in range(60):
        mean = (low + high) / 2
        below = float(np.exp(i * math.log(mean) - mean - log_factorial).sum())
        low, high = (mean, high) if below > probability else (low, mean)
    return (low + high) / 2


def _overlap(event: Event, word: Word) -> bool:
    return event.start <= word.end and word.start <= event.end
