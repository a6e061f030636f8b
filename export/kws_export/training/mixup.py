"""Mixup: a batch blended with itself in another order, so that a clip counts for two words at once.

Source: H. Zhang, M. Cisse, Y. N. Dauphin and D. Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", 2018. It is of
the features here, not of the sound.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Blend:
    """A blended batch.

    Attributes
    ----------
    features : floating [B, coefficients, frames], weight · own + (1 - weight) · another clip's.
    others : int64 [B], the labels of those other clips.
    weight : how much the batch's own clips and labels count, 0.5 to 1.
    """

    features: Tensor
    others: Tensor
    weight: float


def blended(features: Tensor, labels: Tensor, strength: float, seed: tuple[int, ...]) -> Blend:
    """Blend each clip of a batch with another of it.

    The weight is the same for the whole batch, as in the source, and drawn from Beta(strength, strength). As both
    clips of a pair are of the same batch, a weight w is the same as 1 - w, and the larger of the two is taken.

    Parameters
    ----------
    features, labels : floating [B, coefficients, frames] and int64 [B].
    strength : above 0; the smaller, the more often one of the two clips is hardly there.
    seed : what it is drawn from; the same seed gives the same blend.

    Example
    -------
    >>> blend = blended(torch.eye(3)[:, :, None], torch.arange(3), 0.2, (1, 0, 7))
    >>> bool((blend.features.sum(1) == 1).all())
    True
    """
    rng = np.random.default_rng(seed)
    share = float(rng.beta(strength, strength))
    weight = max(share, 1 - share)
    order = torch.from_numpy(rng.permutation(len(labels)))
    return Blend(torch.lerp(features[order], features, weight), labels[order], weight)
