"""Averages of weights: the running one of a run, which is judged and exported, and that of several runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kws_edge.errors import SettingError
from kws_export.training.checkpoint import load_checkpoint


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


def mean_of_runs(paths: Sequence[Path]) -> dict[str, Any]:
    """A checkpoint whose weights and statistics are the mean of several checkpoints'; all else is the last one's.

    It helps where one run started from the other, or both from the same weights: what lies between them is then as
    good as either, and often better on what each of them is weak at. Source: M. Wortsman et al. 2022, "Model soups".

    Raises
    ------
    SettingError : fewer than two checkpoints, one that cannot be read, or networks of other shapes, words, variants or
        paddings.
    """
    if len(paths) < 2:
        raise SettingError(f"{len(paths)} checkpoint to average; expected two or more")
    saved = [load_checkpoint(path) for path in paths]
    last = saved[-1]
    for path, other in zip(paths, saved, strict=True):
        for what in ("labels", "front_end"):
            if other[what] != last[what]:
                raise SettingError(f"{path} and {paths[-1]} have different {what}; expected runs of one kind")
        for what, usual in (("variant", ""), ("padding", "same")):
            ours, theirs = (each["recipe"].get(what, usual) for each in (last, other))
            if ours != theirs:
                raise SettingError(f"{path} has the {what} {theirs}, and {paths[-1]} {ours}; expected runs of one kind")
        if _shapes(other) != _shapes(last):
            raise SettingError(f"{path} and {paths[-1]} are of different shapes; expected the same channels and repeat")
    weights = {name: torch.stack([other["model"][name] for other in saved]).mean(0) for name in last["model"]}
    return {key: last[key] for key in ("recipe", "labels", "front_end", "epoch")} | {"model": weights}


def _shapes(checkpoint: dict[str, Any]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in checkpoint["model"].items()}
