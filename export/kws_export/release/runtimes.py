"""Whether torch, ONNX Runtime and the numpy reference give the same answers, checked on real clips."""

import numpy as np
import torch

from kws_edge.errors import ModelError
from kws_edge.model import evidence
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.variants import get_variant
from kws_export.network.head import evidential_head
from kws_export.training.checkpoint import Checkpoint

LARGEST_GAP = 1e-4
"""How far torch, ONNX Runtime and numpy may be apart, relative to values above 1."""


def check_runtimes(checkpoint: Checkpoint, model: KeywordModel, features: torch.Tensor) -> dict[str, float]:
    """The largest difference of torch, ONNX Runtime and numpy in each output, over batches of 1 to 10 clips.

    Parameters
    ----------
    features : float32 [n, coefficients, frames], of real clips.

    Returns
    -------
    "class" (the logit of the class that was named), "alpha", "vacuity" and "entropy" → the largest difference, relative
    to values above 1.

    Raises
    ------
    ModelError : a difference is above LARGEST_GAP.
    """
    variant = get_variant(checkpoint.recipe.variant)
    worst = dict.fromkeys(("class", "alpha", "vacuity", "entropy"), 0.0)
    start, size = 0, 1
    while start < len(features):
        x = features[start : start + size]
        with torch.inference_mode():
            logits = checkpoint.network(x)
            in_torch = evidential_head(logits, variant)
        in_onnx = model.run(x.numpy())
        a = evidence.alpha(logits.numpy().astype(np.float64), variant)
        z, row = logits.numpy(), np.arange(len(x))
        onnx_values = (z[row, in_onnx.labels], in_onnx.alpha, in_onnx.vacuity, in_onnx.entropy)
        numpy_values = (z.max(1), a, evidence.vacuity(a, variant), evidence.entropy(a))
        torch_values = (z[row, in_torch.label.numpy()], *(t.numpy() for t in in_torch[1:]))
        for key, value, *others in zip(worst, onnx_values, torch_values, numpy_values, strict=True):
            for other in others:
                gap = np.abs(value - other) / np.maximum(1, np.abs(other))
                worst[key] = float(np.maximum(worst[key], gap.max()))  # which keeps NaN, as max does not
        start, size = start + size, size % 10 + 1
    if not (largest := float(np.max(list(worst.values())))) <= LARGEST_GAP:
        raise ModelError(f"torch, ONNX Runtime and numpy differ by {largest:.2e}; expected at most {LARGEST_GAP:.0e}")
    return worst
