"""The evidential head in torch, float32: the twin of the ONNX graph's last nodes, formula by formula."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from kws_edge.model.evidence import LOGIT_LIMIT
from kws_edge.model.variants import Variant


class HeadOutputs(NamedTuple):
    """What a model file gives: class int64 [B], alpha [B, K], vacuity [B], normalised entropy [B], float32."""

    label: Tensor
    alpha: Tensor
    vacuity: Tensor
    entropy: Tensor


def evidential_head(logits: Tensor, variant: Variant) -> HeadOutputs:
    """Logits to the four outputs of the contract. float32 [B, K] → HeadOutputs. Formulas: kws_edge.model.evidence.

    The class is that of the largest logit, since α may be a tie (`kws_edge.model.evidence.label`).
    """
    z = logits.float().clamp_min(-LOGIT_LIMIT)
    if variant.activation == "exp":
        evidence = z.clamp_max(LOGIT_LIMIT).exp()
    else:
        u = torch.exp(-z.abs())
        evidence = z.clamp_min(0) + 2 * torch.atanh(u / (2 + u))
    alpha = evidence + variant.alpha_offset
    K = alpha.shape[-1]
    alpha0 = alpha.sum(-1, keepdim=True)
    p = alpha / alpha0
    entropy = -(p * p.clamp_min(torch.finfo(p.dtype).tiny).log()).sum(-1) / math.log(K)
    vacuity = K / (alpha0.squeeze(-1) + K * (1 - variant.alpha_offset))
    return HeadOutputs(logits.argmax(-1), alpha, vacuity, entropy.clamp(0, 1))
