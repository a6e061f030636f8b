"""What a run trains on: its classes, decoded clips, validation features, noises and recordings without a word."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_export.data.batches import split_features
from kws_export.data.negatives import Negatives, load_recordings
from kws_export.data.speech_commands import background, index, listed, words_with
from kws_export.data.splits import ArrayDataset, load_split
from kws_export.training.about import About, about_folder
from kws_export.training.checkpoint import Trained, starting_network, weights_file
from kws_export.training.recipe import Recipe
from kws_export.training.run_folder import has_run


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data of one run.

    Attributes
    ----------
    labels : the classes, in the order of the network's outputs.
    train : the training clips.
    validation : features float32 [n, coefficients, frames] and classes int64 [n].
    noises : float32 recordings that augmentation mixes in.
    negatives : draws windows without a word; None for a recipe that has none.
    about : what the recordings' folder says of them.
    start : the file that the run starts from, and its network; None for random weights, and where it goes on.
    """

    labels: tuple[str, ...]
    train: ArrayDataset
    validation: tuple[Tensor, Tensor]
    noises: Sequence[F32]
    negatives: Negatives | None
    front_end: FrontEnd
    about: About = field(default_factory=About)
    start: tuple[Path, Trained] | None = None

    @property
    def fingerprint(self) -> str:
        """Changes with the training clips, noises and other recordings, by their names and lengths."""
        others = self.negatives.others if self.negatives else ()
        lengths = [*self.train.lengths.tolist(), *map(len, self.noises), *map(len, others)]
        return hashlib.sha256(os.fsencode(f"{self.train.names} {lengths}")).hexdigest()


def prepare(
    recipe: Recipe, data_root: Path, cache: Path, negatives: Sequence[str] = (), *, folder: Path | None = None
) -> TrainingData:
    """Decode what a recipe trains on, or find it in the cache.

    Parameters
    ----------
    data_root : Speech Commands, in its public layout.
    negatives : the recordings without a word that a recipe with negatives draws from: folders, files, globs.
    folder : that of the run. Where it holds one, this has the weights, and the recipe's start is not read.

    Raises
    ------
    SettingError, ModelError, AudioError : the data cannot be used; a recipe's start or teacher is missing, or the start
        does not fit the recipe, which is said before anything is decoded.
    """
    front_end, about = FrontEnd(), about_folder(data_root)
    labels = tuple(recipe.labels or words_with(index(data_root), recipe.min_clips))
    if len(labels) < 2:
        raise SettingError(
            f"{len(labels)} words in {data_root} have more than min_clips={recipe.min_clips} training clips; "
            "expected at least 2: lower min_clips in the recipe, or name its labels"
        )
    new = folder is None or not has_run(folder)
    start = starting_network(recipe, front_end) if recipe.start and new else None
    if recipe.test_list:
        listed(data_root, recipe.test_list)  # which is read hours later, when the run is exported
    for teacher in recipe.distillation.teachers:
        weights_file(teacher)
    train = load_split(data_root, "train", labels, cache)
    if mute := [label for i, label in enumerate(labels) if i not in train.labels]:
        raise SettingError(
            f"no training clip for {', '.join(mute)} in {data_root}: a class that is never shown is never learnt; "
            "expected clips of it, or labels without it"
        )
    validation = load_split(data_root, "validation", labels, cache)
    shortest = front_end.max_samples + recipe.extra_frames * front_end.hop  # sound for all windows in succession
    noises = _noises(recipe, data_root, shortest)
    drawn = None
    if recipe.negatives.share > 0:
        by_pattern = load_recordings(negatives, data_root)
        others = [recording for recordings in by_pattern for recording in recordings]
        drawn = Negatives(train, list(noises), others, recipe.negatives)
        joined = [np.concatenate(recordings) for recordings in by_pattern if recordings]
        noises += [as_float(j) for j in joined if len(j) >= shortest]
    elif negatives:
        raise SettingError(f"recordings without a word given, but recipe {recipe.name} has no [negatives] share")
    features = split_features(validation, front_end)
    held_out = features, torch.from_numpy(validation.labels)
    return TrainingData(labels, train, held_out, noises, drawn, front_end, about, start)


def _noises(recipe: Recipe, data_root: Path, shortest: int) -> list[F32]:
    """The background noises, where the recipe draws from them; each has so many samples at least."""
    in_negatives = recipe.negatives.share > 0 and recipe.negatives.noise > 0
    if not (in_negatives or recipe.augmentation.background_probability > 0):
        return []
    noises = background(data_root)
    for name, noise in noises.items():
        if noise.size < shortest:
            raise SettingError(
                f"background noise {name} in {data_root} has {noise.size} samples; "
                f"expected {shortest / SAMPLE_RATE:.1f} s or more"
            )
    return list(noises.values())
