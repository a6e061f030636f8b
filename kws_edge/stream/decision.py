"""From hops to events: each spoken word once, and "not sure" once for what might have been a word.

The decision is a function of `trace.Hops` and of the settings alone, so a recording that was traced once can be decided
again under any settings.

The rule
--------
Smoothing: p̂ and the vacuity are averaged over the windows of the last `smoothing` seconds, those without sound or
before the start counting as no evidence (p̂ uniform, vacuity 1); the entropy is that of the averaged p̂. A hop is
accepted where every score that has a threshold is at or below it and p̂ of the best label reaches `probability`.

Words: the first accepted hop gives the event, and disarms the decision. It is armed again when, for `rearm` seconds on
end, a score is above its threshold by `hysteresis` of the way to 1, or another label is the best. Two events are never
closer than `refractory` seconds. An accepted label outside the chosen words gives no event. A label that begins
with an underscore (`_unknown_`) is no word, and never accepted.

Crowding: a command is said on its own, speech goes on. Crowded are the hops of the last `CROWD_SPAN` that are `SPEECH`
above the noise floor and no more than `CROWD_LEVEL` below the loudest of the last `CROWD_RECENT`: about as loud as what
has just been said, so a radio in the background is none. What they last beyond `CROWD_FREE`, which a word needs itself,
up to `CROWD_MOST`, is multiplied by `crowding` and added to the logit of each score, log(s / (1 - s)), before it is
compared with its threshold. So within running speech a word must be surer. It answers no later for that.

Abstentions: sound that is `SPEECH` above the noise floor makes an episode, which ends with a pause of `PAUSE`. If it
lasted as long as an utterance may (`MIN_SPEECH` to `MAX_SPEECH`) and no label was accepted in it, there is one event
without a label, with the numbers of its least uncertain hop. Longer ones (music, a radio) were not said to the device.
The pause is as long as a word may go on being recognised after its end, so that no word follows its own abstention.
By default there is one only where a word might have been meant: where a chosen one stands out (`worth_naming`). A bark
does not ask for an answer, and "not sure, best guess happy" is of no use to who waits for a yes. Where all are
asked for, only those are left out of which the guess is a word outside the chosen ones that stands out.
"""

import math
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.model import evidence
from kws_edge.model.metadata import Metadata, is_word
from kws_edge.model.prediction import Reason, worth_naming
from kws_edge.model.variants import get_variant
from kws_edge.stream.events import ABSTENTIONS, Abstentions, Event
from kws_edge.stream.framing import LEVEL_SPAN, Hop, check_hop, window_seconds
from kws_edge.stream.settings import StreamSettings, chosen_labels
from kws_edge.stream.trace import Hops

SPEECH: Final = 9.0  # dB above the noise floor
MIN_SPEECH, MAX_SPEECH = 0.2, 3.0  # s
PAUSE: Final = 0.6  # s
CROWD_SPAN, CROWD_RECENT = 2.5, 1.0  # s
CROWD_LEVEL: Final = 8.0  # dB
CROWD_FREE, CROWD_MOST = 0.4, 1.0  # s

_ROUNDING = 1e-6  # s; durations are differences of times in float64


class Smoothed(NamedTuple):
    """What is decided by, at one hop: the best label's index, p̂ float32 [K], the two scores, and how crowded it is.

    That is what the odds of the scores are multiplied by, 1 where a word is on its own.
    """

    guess: int
    probability: F32
    vacuity: float
    entropy: float
    odds: float = 1.0

    def score(self, name: str) -> float:
        """What is compared with the threshold of this name, of `score.SCORES`."""
        u = self.vacuity if name == "vacuity" else self.entropy
        return u if self.odds == 1 else u * self.odds / (u * self.odds + 1 - u)


@dataclass(slots=True)
class _Episode:
    """Sound above the noise floor, and what the network made of it."""

    start: float
    last: float
    accepted: bool = False
    clipped: bool = False
    best: Smoothed | None = None


class Decision:
    """The rule with its memory. It takes hops in as many pieces as they come; the events are the same."""

    def __init__(
        self,
        metadata: Metadata,
        settings: StreamSettings,
        hop: float,
        words: Collection[str] | None = None,
        *,
        abstentions: Abstentions = "words",
    ) -> None:
        """Start a stream.

        Parameters
        ----------
        words : the labels that give events, as `chosen_labels` gives them; None for all.
        abstentions : which are events.

        Raises
        ------
        SettingError : the abstentions are no such choice, the settings name a label that the model lacks,
            or the hop is out of its range.
        """
        check_hop(hop, metadata.front_end)
        if abstentions not in ABSTENTIONS:
            raise SettingError(f"abstentions={abstentions!r}; expected one of {', '.join(ABSTENTIONS)}")
        self.settings, self._abstentions = settings, abstentions
        self.hop = hop
        self._model, self._labels, self._variant = metadata.name, metadata.labels, get_variant(metadata.variant)
        self._window = window_seconds(metadata)
        if unknown := sorted(set(settings.labels) - set(self._labels)):
            raise SettingError(
                f"stream settings: thresholds for {', '.join(unknown)}; expected labels among {', '.join(self._labels)}"
            )
        self._chosen = [words is None or label in words for label in self._labels]
        self._is_word = [is_word(label) for label in self._labels]
        self._limits = [_limits(settings, label) for label in self._labels]
        self._probability = float(np.float32(settings.probability))
        self._first_score = next(iter(settings.thresholds))
        self._smooth = max(1, round(settings.smoothing / hop))
        self._rearm = max(1, round(settings.rearm / hop))
        self._levels = deque[float](maxlen=max(1, round(CROWD_RECENT / hop)))
        self._speech = deque[float](maxlen=max(1, round(CROWD_SPAN / hop)))
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._forget_windows()
        self._armed = True
        self._released = 0  # hops on end
        self._word = -1  # that of the last event
        self._event_time = -math.inf
        self._episode: _Episode | None = None
        self._levels.clear()
        self._speech.clear()
        self.last: Smoothed | None = None

    def gap(self, seconds: float) -> None:
        """Go on after a loss of sound of that length, 0 or more: what was lost was quiet, as the windows before it."""
        self._forget_windows()
        hops = min(round(seconds / self.hop), math.ceil(CROWD_SPAN / self.hop))
        for past in (self._levels, self._speech):
            past.extend([-math.inf] * hops)

    def _forget_windows(self) -> None:
        K = len(self._labels)
        self._past = np.full((self._smooth - 1, K + 1), 1 / K, np.float32)  # p̂ and vacuity of each window
        self._past[:, K] = 1

    def step(self, hops: Hops) -> list[Event]:
        """The events of the next hops."""
        return [event for events, _ in self.each(hops) for event in events]

    def each(self, hops: Hops) -> Iterator[tuple[list[Event], Smoothed]]:
        """The events of each of the next hops, and what they were decided by."""
        columns = (hops.time, hops.level, hops.noise, hops.clipped, hops.heard)
        rows = zip(self._smoothed(hops.alpha, hops.vacuity), *(column.tolist() for column in columns), strict=True)
        for now, time, level, noise, clipped, heard in rows:
            yield self._decide(now, time, level, clipped=clipped, speech=level > noise + SPEECH, heard=heard)

    def step_one(self, hop: Hop, alpha: F32, vacuity: F32) -> list[Event]:
        """The events of the next hop, with what the network says of it, or no evidence: float32 [1, K] and [1]."""
        (now,) = self._smoothed(alpha, vacuity)
        speech, heard = hop.level > hop.noise + SPEECH, hop.frames is not None
        events, _ = self._decide(now, hop.time, hop.level, clipped=hop.clipped, speech=speech, heard=heard)
        return events

    def _smoothed(self, alpha: F32, vacuity: F32) -> Iterator[Smoothed]:
        """What to decide by at each of n hops; each by the same additions in the same order however they come."""
        n, w, K = len(alpha), self._smooth, len(self._labels)
        rows = np.empty((w - 1 + n, K + 1), np.float32)
        rows[: w - 1] = self._past
        rows[w - 1 :, :K] = evidence.probability(alpha)
        rows[w - 1 :, K] = vacuity
        self._past = rows[n:]
        means = np.empty((n, K + 1), np.float32)
        for i in range(n):
            np.add.reduce(rows[i : i + w], axis=0, out=means[i])
        means /= w
        p, u = means[:, :K], means[:, K]
        return map(Smoothed, p.argmax(axis=-1).tolist(), p, u.tolist(), evidence.entropy_of(p).tolist())

    def _decide(
        self, now: Smoothed, time: float, level: float, *, clipped: bool, speech: bool, heard: bool
    ) -> tuple[list[Event], Smoothed]:
        self.last = now = now._replace(odds=self._odds(level, speech=speech))
        best = now.guess
        accepted, released = self._is_word[best] and now.probability[best] >= self._probability, False
        for score, limit, release in self._limits[best]:
            u = now.score(score)
            accepted = accepted and u <= limit
            released = released or u > release
        event = self._follow(time, now, accepted=accepted, clipped=clipped, speech=speech, heard=heard)
        events = [event] if event else []
        self._released = self._released + 1 if released or best != self._word else 0
        self._armed = self._armed or self._released >= self._rearm
        if accepted and self._armed and time - self._event_time >= self.settings.refractory - _ROUNDING:
            self._armed, self._released, self._word, self._event_time = False, 0, best, time
            if self._chosen[best]:
                events.append(self._event(now, time, self._episode, None))
        return events, now

    def _odds(self, level: float, *, speech: bool) -> float:
        """How crowded the next hop is."""
        if not self.settings.crowding:
            return 1.0
        self._levels.append(level)
        self._speech.append(level if speech else -math.inf)
        least = max(self._levels) - CROWD_LEVEL
        seconds = self.hop * sum(map(least.__lt__, self._speech)) - CROWD_FREE
        return math.exp(self.settings.crowding * min(max(seconds, 0.0), CROWD_MOST))

    def _follow(
        self, time: float, now: Smoothed, *, accepted: bool, clipped: bool, speech: bool, heard: bool
    ) -> Event | None:
        """Carry the episode on; its abstention where it ends without a word.

        A word accepted at this hop may be that of the episode which ends here, or of the one which begins here: it
        belongs to both.
        """
        episode, event = self._episode, None
        span = max(LEVEL_SPAN, self.hop)
        if episode and time - (span if speech else 0) - episode.last >= PAUSE - _ROUNDING:
            length = episode.last - episode.start
            utterance = MIN_SPEECH - _ROUNDING <= length <= MAX_SPEECH + _ROUNDING
            if episode.best and utterance and not (episode.accepted or accepted) and self._asked_for(episode.best):
                known = self._is_word[episode.best.guess]
                reason = Reason.CLIPPED if episode.clipped else Reason.UNCERTAIN if known else Reason.UNKNOWN_WORD
                event = self._event(episode.best, time, episode, reason)
            self._episode = episode = None
        if speech and not episode:
            self._episode = episode = _Episode(max(0.0, time - span), time)
        if episode:
            episode.last = time if speech else episode.last
            episode.accepted |= accepted
            episode.clipped |= clipped
            score = self._first_score
            if heard and (episode.best is None or now.score(score) < episode.best.score(score)):
                episode.best = now
        return event

    def _asked_for(self, smoothed: Smoothed) -> bool:
        """Whether an abstention with this guess becomes an event."""
        guess, p = smoothed.guess, float(smoothed.probability[smoothed.guess])
        stands_out = worth_naming(self._labels[guess], p, len(self._labels))
        if self._abstentions == "all":
            return self._chosen[guess] or not stands_out
        return self._abstentions == "words" and stands_out and self._chosen[guess]

    def _event(self, smoothed: Smoothed, time: float, episode: _Episode | None, reason: Reason | None) -> Event:
        start, end = max(0.0, time - self._window), time
        if episode and reason:
            start, end = episode.start, episode.last
        elif episode and episode.last > start:
            start, end = max(start, episode.start), episode.last
        guess = self._labels[smoothed.guess]
        return Event(
            label=None if reason else guess,
            guess=guess,
            probability=float(smoothed.probability[smoothed.guess]),
            alpha=evidence.dirichlet(smoothed.probability, smoothed.vacuity, self._variant),
            vacuity=smoothed.vacuity,
            entropy=smoothed.entropy,
            reason=reason,
            start=start,
            end=end,
            time=time,
            model=self._model,
        )


def decide(
    metadata: Metadata,
    hops: Hops,
    settings: StreamSettings,
    words: Collection[str] | None = None,
    *,
    abstentions: Abstentions = "words",
) -> list[Event]:
    """All the events of a recording that was traced (`trace.trace`); parameters and errors are those of `Decision`.

    Words may be written in capitals or not; a SettingError where one of them is no label of the model.
    """
    chosen = chosen_labels(words, metadata.labels)
    return Decision(metadata, settings, hops.hop, chosen, abstentions=abstentions).step(hops)


def _limits(settings: StreamSettings, label: str) -> list[tuple[str, float, float]]:
    """A label's scores, each with the highest that is accepted and the highest that does not release the decision."""
    own = settings.labels.get(label, {})
    t = np.array([own.get(score, threshold) for score, threshold in settings.thresholds.items()], np.float32)
    release = t + np.float32(settings.hysteresis) * (1 - t)  # in float32, as the scores are
    return list(zip(settings.thresholds, t.tolist(), release.tolist(), strict=True))
