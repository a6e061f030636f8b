"""A run that starts from another's network: its weights, as far as the two know the same words."""

import copy
import logging
from pathlib import Path

import numpy as np

from kws_edge.model.variants import Variant
from kws_export.data.batches import subset_features
from kws_export.graph.read import measure_statistics
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.network.widen import widen
from kws_export.training.checkpoint import Trained
from kws_export.training.prepared import TrainingData

STATISTICS_CLIPS = 512
"""Training clips on which the statistics that an ONNX file lacks are measured."""

_log = logging.getLogger(__name__)


def take_weights(network: MatchboxNet, path: Path, trained: Trained, data: TrainingData, variant: Variant) -> None:
    """Give a new network the weights of its start; the words that this does not know keep the random weights they have.

    Parameters
    ----------
    network : that of the recipe. A start with fewer channels is made wider.
    path, trained : the start, as `starting_network` gives it; it stays as it is.
    variant : the network's; where its τ is not that of the trained one, the outputs are of another scale, and start
        from random weights.
    """
    source, labels = copy.deepcopy(trained.network), trained.labels
    if path.suffix == ".onnx":
        clips = len(data.train)
        some = np.linspace(0, clips - 1, num=min(STATISTICS_CLIPS, clips), dtype=int)
        measure_statistics(source, subset_features(data.train, some, data.front_end))
    if source.channels < network.channels:
        _log.warning(
            "%s is made wider, from %d to %d channels, and must train again", path, source.channels, network.channels
        )
        source = widen(source, network.channels)
    weights = source.state_dict()
    same_scale = trained.variant.activation == variant.activation
    own, known = network.classifier, [label for label in data.labels if same_scale and label in labels]
    rows = [labels.index(label) for label in known]
    for name, values in (("weight", own.weight.detach().clone()), ("bias", own.bias.detach().clone())):
        values[[data.labels.index(label) for label in known]] = weights[f"classifier.{name}"][rows].to(values.device)
        weights[f"classifier.{name}"] = values
    network.load_state_dict(weights)
    if not same_scale:
        _log.warning("%s gives evidence on another scale: all outputs start from random weights", path)
    elif len(known) < len(data.labels):
        new = ", ".join(label for label in data.labels if label not in labels)
        _log.warning("%s does not know %s: these outputs start from random weights", path, new)
