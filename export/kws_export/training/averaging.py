"""The running average of the weights, which is what is judged and exported."""

import torch
from torch import nn


def momentum(average: float, step: int) -> float:
    """How much of the average stays at a step, counted from 0: less at first, so that it forgets where it started.

    (1 + t) / (10 + t) until that reaches `average`: after t steps the average covers about the last tenth of the run.
    Without it, at 0.998 the start still has a third of the weight after 500 steps, which may be 20 epochs of a small
    data set.
    """
    return min(average, (1 + step) / (10 + step))


@torch.no_grad()
def follow(judged: nn.Module, trained: nn.Module, average: float, step: int) -> None:
    """Move the judged weights towards the trained ones, statistics included, after a step, counted from 0."""
    ours, theirs = (list(module.state_dict().values()) for module in (judged, trained))
    torch._foreach_lerp_(ours, theirs, 1 - momentum(average, step))
