"""Learning from other networks: their answers to the windows that a run trains on, beside the clips' labels.

Source: G. Hinton, O. Vinyals and J. Dean, "Distilling the Knowledge in a Neural Network", 2015, read for Dirichlet
outputs in losses.py (`distillation_loss`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_export.training.checkpoint import Trained, weights_file
from kws_export.training.losses import Lesson, alpha
from kws_export.training.recipe import Distillation


class Teachers:
    """Trained networks, of any size and variant, that answer for the windows of each batch."""

    def __init__(
        self, settings: Distillation, labels: Sequence[str], front_end: FrontEnd, device: torch.device
    ) -> None:
        """Load them for a run on these classes and features.

        Raises
        ------
        SettingError, ModelError : what `Trained.load` raises; a teacher has other classes, or another order of them.
        """
        self.settings = settings
        self.networks = []
        for name in settings.teachers:
            trained = Trained.load(weights_file(name), front_end)
            if trained.labels != tuple(labels):
                raise SettingError(
                    f"the teacher {name} knows {', '.join(trained.labels)}; expected this run's classes in their "
                    f"order, {', '.join(labels)}"
                )
            self.networks.append((trained.network.to(device), trained.variant))

    @torch.no_grad()
    def lesson(self, features: Tensor) -> Lesson:
        """What they say of a batch, float32 [B, coefficients, frames]: the mean of their p̂.

        The mean is of p̂, not of α, whose scale differs between networks; `distillation_loss` does not see it.
        """
        answers = [alpha(network(features), variant) for network, variant in self.networks]
        means = torch.stack([a / a.sum(-1, keepdim=True) for a in answers]).mean(dim=0)
        return Lesson(means, self.settings.share, self.settings.temperature)
