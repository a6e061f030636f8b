"""What a model file says of itself before it was run on anything: its data, recipe and licence."""

from typing import Any

from kws_edge.model.metadata import Metadata, Score
from kws_export.network.matchboxnet import parameter_count
from kws_export.training.checkpoint import Checkpoint

LICENCE = "Apache-2.0"
ATTRIBUTION = (
    'Trained on a part of "Speech Commands" by Pete Warden (arXiv:1804.03209), CC BY 4.0, '
    "https://creativecommons.org/licenses/by/4.0/."
)


def uncalibrated_metadata(checkpoint: Checkpoint, score: Score, extra: dict[str, Any]) -> Metadata:
    """The description of a model before it was run on anything; `extra` goes into `training`."""
    r = checkpoint.recipe
    training = {
        "data": "Speech Commands (P. Warden), part of v0.01 and v0.02",
        "recipe": r.to_dict(),
        "epochs": r.epochs,
        "best_epoch": checkpoint.epoch,
        "seed": r.seed,
        "repeat": r.repeat,
        "parameters": parameter_count(checkpoint.network),
        **extra,
    }
    return Metadata(
        name=r.name, labels=checkpoint.labels, variant=r.variant, front_end=checkpoint.front_end, score=score,
        thresholds={}, calibration={}, training=training, accuracy={}, licence=LICENCE, attribution=ATTRIBUTION,
        padding=r.padding,
    )  # fmt: skip
