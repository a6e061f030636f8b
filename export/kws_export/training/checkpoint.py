"""What a run trains: the network of its recipe, new, or read back from a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Metadata
from kws_edge.model.variants import Variant, get_variant
from kws_export.graph.read import load_network
from kws_export.network.fast import FastMatchboxNet
from kws_export.network.matchboxnet import MatchboxNet, initialise_xavier
from kws_export.training.recipe import Recipe


def new_network(recipe: Recipe, labels: Sequence[str], front_end: FrontEnd) -> MatchboxNet:
    """The network that a recipe describes, with random weights."""
    network = FastMatchboxNet(len(labels), recipe.repeat, front_end.n_mfcc, recipe.padding, recipe.channels)
    if recipe.initialisation == "xavier":
        initialise_xavier(network)
    return network


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained network and what it was trained as."""

    network: MatchboxNet
    recipe: Recipe
    labels: tuple[str, ...]
    front_end: FrontEnd
    epoch: int

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read best.pt or last.pt of a run, in evaluation mode. Raises SettingError where it is no checkpoint."""
        saved = load_checkpoint(path)
        recipe, labels = Recipe.from_dict(saved["recipe"]), tuple(saved["labels"])
        front_end = FrontEnd.from_dict(saved["front_end"])
        network = new_network(recipe, labels, front_end)
        try:
            network.load_state_dict(saved["model"])
        except (RuntimeError, TypeError, AttributeError):
            raise SettingError(f"{path} holds weights of another network than its recipe describes") from None
        return cls(network.eval(), recipe, labels, front_end, saved["epoch"])

    @classmethod
    def of_model(cls, path: Path) -> "tuple[Checkpoint, Metadata]":
        """Read an exported file, of its own weights, with what it says of itself.

        Raises
        ------
        ModelError : an exported file that `load_network` refuses.
        SettingError : it does not say by which recipe it was trained.
        """
        network, metadata = load_network(path)
        recipe, epoch = trained_as(path, metadata)
        return cls(network.eval(), recipe, metadata.labels, metadata.front_end, epoch), metadata


def trained_as(path: Path, metadata: Metadata) -> tuple[Recipe, int]:
    """The recipe that an exported file was trained by, and the epoch that its weights are of.

    Raises
    ------
    SettingError : the file does not say it, or its recipe is impossible.
    """
    training = metadata.training
    if not {"recipe", "best_epoch"} <= training.keys():
        raise SettingError(f"{path} does not say how it was trained; expected a file of kws-export export")
    return Recipe.from_dict(training["recipe"]), training["best_epoch"]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read `last.pt` or `best.pt` onto the CPU. Raises SettingError where it is missing or no checkpoint."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise SettingError(f"no checkpoint {path}; `kws-export train` writes best.pt and last.pt") from None
    except Exception:  # torch raises a dozen types for files that are not its own, and advice that does not fit
        raise SettingError(
            f"{path} is not a readable checkpoint; expected best.pt or last.pt of kws-export train, or a file of "
            "kws-export export that ends in .onnx"
        ) from None
    if not isinstance(checkpoint, dict) or not {"recipe", "labels", "front_end", "model", "epoch"} <= checkpoint.keys():
        raise SettingError(f"{path} is not a checkpoint of kws-export train")
    return checkpoint


def weights_file(name: str) -> Path:
    """The file that a recipe means by a start or a teacher: of a run's folder, its best weights.

    Raises
    ------
    SettingError : there is none.
    """
    path = Path(name)
    if path.is_dir():
        path /= "best.pt"
    if not path.is_file():
        raise SettingError(
            f"no file {path}; expected a checkpoint, a run's folder or a model, seen from where the command runs; is "
            "it still to be trained?"
        )
    return path


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained network, in evaluation mode, whatever file it came from."""

    network: MatchboxNet
    labels: tuple[str, ...]
    front_end: FrontEnd
    variant: Variant

    @classmethod
    def load(cls, path: Path, front_end: FrontEnd) -> "Trained":
        """Read an exported file where the name ends in .onnx, else a checkpoint.

        Raises
        ------
        ModelError : an exported file that `graph.read.load_network` refuses.
        SettingError : no such file, no checkpoint, or a network of other features than `front_end` gives.
        """
        if path.suffix == ".onnx":
            network, metadata = load_network(path)
            trained = cls(network.eval(), metadata.labels, metadata.front_end, get_variant(metadata.variant))
        else:
            saved = Checkpoint.load(path)
            trained = cls(saved.network, saved.labels, saved.front_end, get_variant(saved.recipe.variant))
        if trained.front_end != front_end:
            raise SettingError(f"{path} has other features than this run; expected the same")
        return trained


def starting_network(recipe: Recipe, front_end: FrontEnd) -> tuple[Path, Trained]:
    """The file that a recipe starts from, and its network, which fits that of the recipe.

    Raises
    ------
    ModelError, SettingError : what `weights_file` and `Trained.load` raise; it has another repeat than the recipe, or
        more channels.
    """
    path = weights_file(recipe.start)
    trained = Trained.load(path, front_end)
    repeat, channels = trained.network.repeat, trained.network.channels
    if repeat != recipe.repeat:
        raise SettingError(
            f"{path} has repeat={repeat}; expected {recipe.repeat}, as the recipe: write repeat = {repeat} in the "
            "recipe, or choose another start"
        )
    if channels > recipe.channels:
        raise SettingError(
            f"{path} has channels={channels}; expected at most {recipe.channels}, as the recipe: write "
            f"channels = {channels} in the recipe, or choose another start"
        )
    return path, trained
