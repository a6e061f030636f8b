"""The running average of the weights."""

import torch
from torch import nn

from kws_export.training.averaging import follow, momentum


def test_it_forgets_the_start_within_a_short_run() -> None:
    trained, judged = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        trained.weight.fill_(1.0)
        judged.weight.fill_(0.0)  # as it was at the start
    for step in range(40):
        follow(judged, trained, 0.998, step)
    assert float(judged.weight) > 0.95  # without a warm-up: 0.08


def test_it_is_as_long_as_asked_once_the_run_is_long() -> None:
    assert momentum(0.998, 100_000) == 0.998
    assert momentum(0.998, 0) == 0.1
