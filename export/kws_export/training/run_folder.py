"""A run's folder: what a run leaves there, so that it can go on from any epoch, and who may write there.

It holds `last.pt` (everything to go on exactly), `best.pt` (the weights with the best validation accuracy so far) and
`history.jsonl` (one line an epoch). Files are replaced whole, so a kill at any moment leaves a run that resumes.
"""

import io
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kws_edge.errors import SettingError
from kws_edge.files import replace_file
from kws_edge.model.features import FrontEnd
from kws_export.training.checkpoint import load_checkpoint
from kws_export.training.lock import held
from kws_export.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One line of history.jsonl. Losses are means over the epoch's clips, accuracies fractions."""

    epoch: int
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    learning_rate: float
    kl_weight: float
    samples_per_second: float


ENOUGH_EPOCHS = 5
"""A run as long as that has learnt all its classes, or has collapsed."""


def collapse(recipe: Recipe, epochs: int, lost: Sequence[str]) -> str:
    """What is wrong with a run that is through, and of whose validation clips of some classes none is named, or ""."""
    if not lost or epochs < max(recipe.epochs, ENOUGH_EPOCHS):
        return ""
    return (
        f"the run has collapsed: after {epochs} epochs no validation clip of {', '.join(lost)} is named; "
        "lower peak_lr, train longer, or give more clips of it"
    )


def has_run(folder: Path) -> bool:
    """Whether a folder holds a run to go on from."""
    return (folder / "last.pt").exists()


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run of one recipe."""

    path: Path
    recipe: Recipe
    labels: tuple[str, ...]
    front_end: FrontEnd

    @property
    def has_run(self) -> bool:
        """Whether there is something to go on from."""
        return has_run(self.path)

    def held(self) -> AbstractContextManager[None]:
        """Keep other processes from training in the folder. Raises SettingError where one does."""
        return held(self.path)

    def load(self) -> dict[str, Any]:
        """What `save` left in last.pt.

        Raises
        ------
        SettingError : it is no checkpoint to go on from, or one of another recipe, of other words or features.
        """
        path = self.path / "last.pt"
        last = load_checkpoint(path)
        if not {"optimiser", "epoch", "best"} <= last.keys():
            raise SettingError(f"{path} cannot be resumed, as it holds only weights; expected a run's own last.pt")
        if changed := self.recipe.differences(Recipe.from_dict(last["recipe"])):
            raise SettingError(
                f"{self.path} holds a run of another recipe, which differs in {', '.join(changed)}; "
                "give another folder, or remove it"
            )
        if tuple(last["labels"]) != self.labels or last["front_end"] != self.front_end.to_dict():
            raise SettingError(
                f"{self.path} holds a run on other words or features ({', '.join(last['labels'])}), so the data "
                "have changed since; give another folder, or remove it"
            )
        return last

    def save(self, result: EpochResult, weights: dict[str, Any], *, improved: bool, best: float, **rest: Any) -> None:
        """Write the files after an epoch; last.pt comes last, as it says that the others are there.

        Parameters
        ----------
        weights : of the network that is judged.
        improved : whether this epoch's validation accuracy is above all earlier ones; best.pt is written then.
        best : the best validation accuracy so far.
        rest : what else last.pt must hold for the run to go on.
        """
        shared = {
            "recipe": self.recipe.to_dict(), "labels": self.labels, "front_end": self.front_end.to_dict(),
            "model": weights, "epoch": result.epoch,
        }  # fmt: skip
        if improved:
            write_checkpoint(self.path / "best.pt", {**shared, "validation_accuracy": best})
        history = self.path / "history.jsonl"
        kept = history.read_text().splitlines()[: result.epoch - 1] if history.exists() else []
        replace_file(history, "\n".join([*kept, json.dumps(asdict(result))]) + "\n")
        write_checkpoint(self.path / "last.pt", {**shared, **rest, "best": best})


def write_checkpoint(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint as a whole or not at all."""
    buffer = io.BytesIO()  # not straight to the file: torch reports a full disk as a RuntimeError of its own
    torch.save(checkpoint, buffer)
    replace_file(path, buffer.getvalue())
