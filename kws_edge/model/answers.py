"""The answer about each window of a clip: a word, or an abstention that says why."""

from collections.abc import Callable, Sequence

import numpy as np

from kws_edge.arrays import F32
from kws_edge.model import evidence
from kws_edge.model.clips import Window
from kws_edge.model.features import pad
from kws_edge.model.metadata import Metadata
from kws_edge.model.prediction import Prediction, Reason, why_withheld
from kws_edge.model.score import Score
from kws_edge.model.selection import OperatingPoint, withheld
from kws_edge.model.session import Outputs


def answers(
    run: Callable[[F32], Outputs],
    metadata: Metadata,
    windows: Sequence[Window],
    score: Score,
    point: OperatingPoint,
) -> list[Prediction]:
    """Run the windows that there is something to hear in; accept or withhold each answer.

    Parameters
    ----------
    run, metadata : the network, as `KeywordModel.run`, and what its file says of it.
    score, point : the uncertainty that decides, and the threshold above which an answer is withheld.
    """
    n = len(windows)
    labels = np.zeros(n, np.int64)
    alpha = np.tile(evidence.no_evidence(len(metadata.labels), metadata.variant), (n, 1))
    uncertainty: dict[Score, F32] = {"entropy": np.ones(n, np.float32), "vacuity": np.ones(n, np.float32)}
    unheard = [_why_unheard(window) for window in windows]
    heard = [i for i in range(n) if unheard[i] is None]
    if heard:
        outputs = run(np.stack([pad(windows[i].frames, metadata.front_end) for i in heard]))
        labels[heard], alpha[heard] = outputs.labels, outputs.alpha
        uncertainty["entropy"][heard], uncertainty["vacuity"][heard] = outputs.entropy, outputs.vacuity
    probability = evidence.probability(alpha)
    uncertain = withheld(uncertainty[score], point.threshold)
    predictions = []
    for i, window in enumerate(windows):
        guess: str | None = None
        reason = unheard[i]
        if reason is None:
            guess = metadata.labels[labels[i]]
            reason = why_withheld(guess, uncertain=bool(uncertain[i]), clipped=window.is_clipped)
        predictions.append(
            Prediction(
                label=guess if reason is None else None,
                guess=guess,
                probability=float(probability[i, labels[i]]),
                alpha=alpha[i],
                vacuity=float(uncertainty["vacuity"][i]),
                entropy=float(uncertainty["entropy"][i]),
                reason=reason,
                start=window.start,
                end=window.end,
                score=score,
                threshold=point.threshold,
                target=point.target,
                model=metadata.name,
            )
        )
    return predictions


def rank(p: Prediction, score: Score) -> tuple[bool, bool, float]:
    """The order in which a long recording's windows answer for it: a word, what the network heard, the rest."""
    return p.label is None, p.guess is None, p.uncertainty_by(score)


def _why_unheard(window: Window) -> Reason | None:
    if window.level is None:
        return Reason.INVALID_AUDIO
    return Reason.SILENCE if window.level.is_silent else None
