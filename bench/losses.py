"""What each variant's loss costs: value and gradient of a batch of logits, on one core.

    python bench/losses.py [--batch 256] [--classes 20] [--rounds 30] [--json]

The variants are measured in turn, in every round in another order, so that what else the machine does meets all of
them; the figure is the median over the rounds, in microseconds a batch. With a KL term the weight is 0.5. Beside it
stands its share of a training step: the same batch through the network, forth and back.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

import torch

from kws_edge.model.variants import VARIANTS, Variant
from kws_export.network.fast import FastMatchboxNet
from kws_export.training.losses import evidential_loss

REPEATS = 5
"""Calls that are timed together."""
NETWORK_ROUNDS = 5
"""Steps of the network, of which the median is taken, as of the losses."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="clips (256, the paper's)")
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = network_time(args.batch, args.classes)
    times = loss_times(args.batch, args.classes, args.rounds)
    if args.json:
        print(json.dumps({"batch": args.batch, "classes": args.classes, "network_us": step, "loss_us": times}))
        return
    print(f"one batch of {args.batch} through the network, forth and back: {step / 1000:.0f} ms")
    print(f"{'variant':<18}{'loss':<16}{'KL':<6}{'µs a batch':>12}{'of a step':>12}")
    for name, value in sorted(times.items(), key=lambda item: item[1]):
        variant = VARIANTS[name]
        kl = "yes" if variant.kl_ramp_epochs else "no"
        print(f"{name:<18}{variant.loss:<16}{kl:<6}{value:>12.0f}{value / (step + value):>12.2%}")


def loss_times(batch: int, classes: int, rounds: int) -> dict[str, float]:
    """Microseconds for value and gradient by the variant's name."""
    labels = torch.randint(classes, (batch,))
    values = torch.randn(batch, classes)
    calls = {name: _call(variant, values, labels) for name, variant in VARIANTS.items()}
    seen: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            seen[name].append(_seconds(calls[name]) * 1e6)
    return {name: statistics.median(times) for name, times in seen.items()}


def network_time(batch: int, classes: int) -> float:
    """Microseconds for one batch through the network, forth and back."""
    network, mfcc = FastMatchboxNet(classes), torch.randn(batch, 64, 128)

    def step() -> None:
        network(mfcc).sum().backward()

    step()
    return statistics.median(_seconds(step, 1) for _ in range(NETWORK_ROUNDS)) * 1e6


def _call(variant: Variant, values: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    logits = values.clone().requires_grad_()
    weight = 0.5 if variant.kl_ramp_epochs else 0.0

    def call() -> None:
        logits.grad = None
        evidential_loss(logits, labels, variant, weight).backward()

    call()
    return call


def _seconds(call: Callable[[], None], repeats: int = REPEATS) -> float:
    started = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - started) / repeats


if __name__ == "__main__":
    main()
