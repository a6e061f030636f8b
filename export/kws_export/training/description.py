"""What a model file says of itself before it was run on anything: its data, recipe and licence."""

from collections.abc import Collection
from typing import Any

from kws_edge.errors import KwsEdgeError
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import Score
from kws_export.graph.build import load_model
from kws_export.network.matchboxnet import parameter_count
from kws_export.texts import UNSTATED
from kws_export.training.about import About
from kws_export.training.checkpoint import Checkpoint, weights_file
from kws_export.training.recipe import Recipe


def uncalibrated_metadata(checkpoint: Checkpoint, score: Score, extra: dict[str, Any], about: About) -> Metadata:
    """The description of a model before it was run on anything.

    Parameters
    ----------
    extra : goes into `training`.
    about : what is known of the recordings, apart from those that a start or a teacher learnt from.
    """
    r, about = checkpoint.recipe, about.stated
    training = {
        "data": about.data,
        "recipe": r.to_dict(),
        "epochs": r.epochs,
        "best_epoch": checkpoint.epoch,
        "seed": r.seed,
        "repeat": r.repeat,
        "parameters": parameter_count(checkpoint.network),
        **extra,
    }
    named = dict.fromkeys([about.attribution, *attributions(r)])  # each once, as a start often shares its recordings
    return Metadata(
        name=r.name, labels=checkpoint.labels, variant=r.variant, front_end=checkpoint.front_end, score=score,
        thresholds={}, calibration={}, training=training, accuracy={}, licence=about.licence,
        attribution=" ".join(named), padding=r.padding,
    )  # fmt: skip


def attributions(recipe: Recipe, seen: Collection[str] = ()) -> list[str]:
    """Whom to name for the networks that a run learnt from, its start and its teachers, but for those already seen.

    A file that was written over may name itself as its own start, by way of others.
    """
    sources = (recipe.start, *recipe.distillation.teachers)
    return [_attribution(name, {*seen, name}) for name in sources if name and name not in seen]


def _attribution(source: str, seen: Collection[str]) -> str:
    """Whom to name for a network, given as in a recipe."""
    try:
        path = weights_file(source)
        if path.suffix == ".onnx":
            return load_model(path)[1].attribution
        recipe = Checkpoint.load(path).recipe
        said = " ".join(dict.fromkeys([recipe.about.attribution, *attributions(recipe, seen)])).strip()
    except KwsEdgeError:
        said = ""
    return said or f"It learnt from {source}, the source and licence of whose recordings are {UNSTATED}."
