"""What a stream tells: a word, or an abstention where there might have been one."""

from dataclasses import dataclass
from typing import Any

from kws_edge.arrays import F32
from kws_edge.model.prediction import Reason


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A word, or an abstention where there might have been one. Times are seconds of the stream.

    Attributes
    ----------
    label : the word; None where the model abstained.
    guess : the most probable label, also where the model abstained.
    probability, vacuity, entropy : the smoothed ones, by which was decided.
    alpha : float32 [K], the Dirichlet that has them.
    reason : why the model abstained; None where it did not.
    start, end : an estimate of where the word lies: from where the sound rose out of the noise, or from the start of
        the window where that is later, to where it last was above it, or the end of the window.
    time : the end of the hop at which was decided: nothing later than this was known.
    model : the name of the model.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter, WavFile
    >>> event = next(Spotter(KeywordModel.load()).listen(WavFile("kws_edge/samples/demo.flac")))
    >>> event.label, event.start < event.end < event.time + 1
    ('yes', True)
    """

    label: str | None
    guess: str
    probability: float
    alpha: F32
    vacuity: float
    entropy: float
    reason: Reason | None
    start: float
    end: float
    time: float
    model: str

    @property
    def abstained(self) -> bool:
        """Whether the label was withheld."""
        return self.reason is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without NaN or infinities."""
        return {
            "label": self.label,
            "guess": self.guess,
            "probability": self.probability,
            "abstained": self.abstained,
            "reason": None if self.reason is None else self.reason.value,
            "start": round(self.start, 3),
            "end": round(self.end, 3),
            "time": round(self.time, 3),
            "vacuity": self.vacuity,
            "entropy": self.entropy,
            "alpha": self.alpha.tolist(),
            "model": self.model,
        }
