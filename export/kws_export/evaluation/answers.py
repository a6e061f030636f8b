"""What a model's answers on a set of clips have in common, as it gives them and as a score file keeps them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, Bools
from kws_edge.model.score import Score


class ClipAnswers:
    """Answers on n clips; the subclasses are dataclasses that hold these and more.

    Attributes
    ----------
    truth, predicted : integers [n], indices of labels; truth is negative for a clip of none of them.
    entropy, vacuity : float32 [n].
    """

    __slots__ = ()

    truth: npt.NDArray[np.signedinteger[Any]]
    predicted: npt.NDArray[np.signedinteger[Any]]
    entropy: F32
    vacuity: F32

    @property
    def correct(self) -> Bools:
        """Which clips the model names right, before any abstention."""
        return self.predicted == self.truth

    def score(self, name: Score) -> F32:
        """The named uncertainty of each clip."""
        return self.vacuity if name == "vacuity" else self.entropy
