"""The answer about one clip or one window: a word, or an abstention that says why."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kws_edge.arrays import F32
from kws_edge.model.metadata import SILENCE_CLASS, is_word
from kws_edge.model.score import Score


class Reason(StrEnum):
    """Why a model abstained; no other reasons exist.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Reason
    >>> KeywordModel.load().classify("kws_edge/samples/noise.flac").reason is Reason.UNCERTAIN
    True
    """

    UNCERTAIN = "uncertain"
    """The uncertainty is above the threshold."""
    CLIPPED = "clipped"
    """The same, and the audio is clipped so badly that this may be the cause."""
    UNKNOWN_WORD = "unknown_word"
    """The network has a class for other words, and is certain of it."""
    SILENCE = "silence"
    """Digital silence, or a constant; or the network has a class for silence, and is certain of it."""
    LOSSES = "losses"
    """A stream lost so many samples that words cannot be recognised."""
    INVALID_AUDIO = "invalid_audio"
    """Samples that are NaN, infinite or far beyond full scale."""


def why_withheld(guess: str, *, uncertain: bool, clipped: bool) -> Reason | None:
    """Why the network's answer is withheld, `guess` being the most probable label; None where it is given.

    Parameters
    ----------
    uncertain : whether the uncertainty is above its threshold.
    clipped : whether the audio is clipped so badly that this may be the cause.
    """
    if uncertain:
        return Reason.CLIPPED if clipped else Reason.UNCERTAIN
    if is_word(guess):
        return None
    return Reason.SILENCE if guess == SILENCE_CLASS else Reason.UNKNOWN_WORD


def worth_naming(guess: str | None, probability: float, labels: int) -> bool:
    """Whether a guess is worth showing: a word, and 0.1 more probable than chance among so many labels."""
    return guess is not None and is_word(guess) and probability > 1 / labels + 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a `Prediction` and a stream's `Event` have in common; their own documentation says what the fields mean."""

    label: str | None
    guess: str | None
    probability: float
    alpha: F32
    vacuity: float
    entropy: float
    reason: Reason | None
    start: float
    end: float

    @property
    def abstained(self) -> bool:
        """Whether the label was withheld."""
        return self.reason is not None

    def uncertainty_by(self, score: Score) -> float:
        """The value of one of the two scores."""
        return self.vacuity if score == "vacuity" else self.entropy

    def as_dict(self, start: float, end: float, model: str, **own: Any) -> dict[str, Any]:
        """Plain JSON types, without NaN or infinities; `own` are the fields that a subclass adds."""
        return {
            "label": self.label,
            "guess": self.guess,
            "probability": self.probability,
            "abstained": self.abstained,
            "reason": None if self.reason is None else self.reason.value,
            "start": start,
            "end": end,
            **own,
            "vacuity": self.vacuity,
            "entropy": self.entropy,
            "alpha": self.alpha.tolist(),
            "model": model,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Prediction(Answer):
    """What a model says about a clip.

    If the network was not run (silent samples, invalid_audio), `guess` is None, and the numbers are
    those of no evidence: a uniform probability, vacuity 1 and entropy 1.

    Attributes
    ----------
    label : the word; None if the model abstained, so that a caller who forgets to check never acts on a guess.
    guess : the most probable label, even if the model abstained; it may not be a word, such as `_unknown_`.
    probability : probability of the guess, in (0, 1].
    alpha : float32 [K], the Dirichlet's parameters in the order of the model's labels, each finite and above 0.
    vacuity, entropy : uncertainty in (0, 1] and [0, 1].
    reason : why the model abstained; None if it did not.
    start, end : where in the audio the window is that was decided on, in seconds.
    score : the uncertainty that decided, "entropy" or "vacuity".
    threshold : the label is withheld if the score is above it.
    target : the accuracy of accepted clips for which the threshold was chosen, such as 0.995.
    model : the name of the model.

    Examples
    --------
    >>> from kws_edge import KeywordModel
    >>> p = KeywordModel.load().classify("kws_edge/samples/yes.flac")
    >>> p.label, p.abstained, p.score, p.entropy <= p.threshold
    ('yes', False, 'entropy', True)
    >>> sorted(p.to_dict())[:4]
    ['abstained', 'alpha', 'end', 'entropy']
    """

    score: Score
    threshold: float
    target: float
    model: str

    @property
    def uncertainty(self) -> float:
        """The value of the score that decided."""
        return self.uncertainty_by(self.score)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without NaN or infinities."""
        return self.as_dict(
            self.start, self.end, self.model, score=self.score, threshold=self.threshold, target=self.target
        )
