"""Hard negatives: the stretches of recordings without words to which a network, as it is now, gives the most evidence.

A network with padding "valid" is computed once over a whole recording; every window is then a mean of frames.
"""

from collections.abc import Sequence

import numpy as np
import torch

from kws_edge.arrays import F32, F64, I16
from kws_edge.audio.pcm import as_float
from kws_edge.model.features import FrontEnd
from kws_edge.model.variants import Variant
from kws_export.data.features import frames_of
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.losses import evidence, no_word_loss

HOP = 5
"""Frames, 50 ms, between the windows that are looked at."""
SPACING = 6
"""Of so many neighbouring windows, 0.3 s, one is taken at most: the others show the same sound."""
TOGETHER = 64
"""Recordings no longer than a window that are computed at once."""
_BLOCK = 1 << 20  # samples of a recording that are floating at once


def recording_features(samples: I16, front_end: FrontEnd) -> F32:
    """All the frames of a recording: [n] → float32 [coefficients, frames]."""
    blocks = (as_float(samples[start : start + _BLOCK]) for start in range(0, len(samples), _BLOCK))
    return np.concatenate(list(frames_of(blocks, front_end)), axis=1)


@torch.inference_mode()
def window_logits(network: MatchboxNet, features: F32, frames: int, hop: int = HOP) -> torch.Tensor:
    """What the network says of a recording's windows of `frames` frames, each `hop` after the last: [windows, classes].

    features : float32 [coefficients, T], T at least `frames`. The network must be in evaluation mode, with padding
    "valid", so that an activation depends on its own frames alone.
    """
    x = network.activations(torch.from_numpy(features)[None].to(network.classifier.weight.device))
    pooled = frames - 2 * network.edge
    sums = torch.nn.functional.pad(x[0].double().cumsum(1), (1, 0))
    starts = torch.arange(0, features.shape[1] - frames + 1, hop) + network.edge
    means = (sums[:, starts + pooled] - sums[:, starts]) / pooled
    return network.classifier(means.float().T)


@torch.inference_mode()
def hard_windows(
    network: MatchboxNet, variant: Variant, recordings: Sequence[I16], front_end: FrontEnd, count: int
) -> tuple[list[tuple[int, int]], F64]:
    """The `count` windows without a word that cost most, at most one in `SPACING`.

    Returns
    -------
    (recording, first sample) of each, and its `no_word_loss`, [count], falling. The first sample is below 0 where the
    recording is shorter than a window.
    """
    found: list[tuple[float, int, int]] = []
    training = network.training
    network.eval()
    window = (front_end.frames - 1) * front_end.hop + front_end.window
    short = [i for i, samples in enumerate(recordings) if len(samples) <= window]
    for i, samples in enumerate(recordings):
        if len(samples) <= window:
            continue
        logits = window_logits(network, recording_features(samples, front_end), front_end.frames)
        losses = no_word_loss(evidence(logits, variant)).numpy(force=True)
        for first in range(0, len(losses), SPACING):
            at = first + int(np.argmax(losses[first : first + SPACING]))
            found.append((float(losses[at]), i, at * HOP * front_end.hop))
    for first in range(0, len(short), TOGETHER):
        some = short[first : first + TOGETHER]
        before = [(window - len(recordings[i])) // 2 for i in some]  # in the midst of silence
        padded = [
            np.pad(recordings[i], (b, window - len(recordings[i]) - b)) for i, b in zip(some, before, strict=True)
        ]
        windows = torch.from_numpy(np.stack([recording_features(x, front_end) for x in padded]))
        cost = no_word_loss(evidence(network(windows.to(network.classifier.weight.device)), variant))
        found += [(loss, i, -b) for loss, i, b in zip(cost.tolist(), some, before, strict=True)]
    network.train(training)
    found.sort(reverse=True)
    chosen = found[:count]
    return [(i, start) for _, i, start in chosen], np.array([loss for loss, _, _ in chosen])
