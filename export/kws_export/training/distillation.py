"""Learning from another network: its answers to the windows that a run trains on, beside the clips' labels.

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


class Teacher:
    """A trained network, of any size and variant, that answers for the windows of each batch."""

    def __init__(
        self, settings: Distillation, labels: Sequence[str], front_end: FrontEnd, device: torch.device
    ) -> None:
        """Load it for a run on these classes and features.

        Raises
        ------
        SettingError, ModelError : what `Trained.load` raises; the teacher has other classes, or another order of them.
        """
        self.settings = settings
        trained = Trained.load(weights_file(settings.teacher), front_end)
        if trained.labels != tuple(labels):
            raise SettingError(
                f"the teacher {settings.teacher} knows {', '.join(trained.labels)}; expected this run's classes in "
                f"their order, {', '.join(labels)}"
            )
        self.network, self.variant = trained.network.to(device), trained.variant

    @torch.no_grad()
    def lesson(self, features: Tensor) -> Lesson:
        """What it says of a batch, float32 [B, coefficients, frames]."""
        return Lesson(alpha(self.network(features), self.variant), self.settings.share, self.settings.temperature)
