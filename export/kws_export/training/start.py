"""A run that starts from another's network: its weights, as far as the two know the same words."""

import logging
from pathlib import Path

import numpy as np

from kws_edge.errors import SettingError
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


def take_weights(network: MatchboxNet, path: Path, data: TrainingData, variant: Variant) -> None:
    """Give a new network a trained one's weights; the words that it does not know keep the random weights they have.

    Parameters
    ----------
    variant : the network's; where its τ is not that of the trained one, the outputs are of another scale, and start
        from random weights.
    path : a checkpoint or an exported file, of the same repeat; with fewer channels it is made wider.

    Raises
    ------
    ModelError, SettingError : what `Trained.load` raises; the networks do not fit.
    """
    trained = Trained.load(path, data.front_end)
    source, labels = trained.network, trained.labels
    if source.repeat != network.repeat:
        raise SettingError(f"{path} has repeat={source.repeat}; expected {network.repeat}")
    if source.channels > network.channels:
        raise SettingError(f"{path} has channels={source.channels}; expected at most {network.channels}, as the recipe")
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
