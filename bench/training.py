"""Samples per second of a training step (forward, loss, backward, NovoGrad) on this machine's CPU.

    python bench/training.py [--rounds 7] [--batch 128] [--repeat 1]

The plain network and the one on compiled kernels; then the latter with what a run does besides, augmentation and
features of each clip, also as two processes of one thread, as torchrun starts them or as two runs side by side. They
take turns in every round, so that a neighbour's load hits all of them; the medians are printed as a table and written
to bench/results/training.json. "Per core" counts the CPU time spent, which a neighbour distorts less than the clock on
the wall.
"""

import argparse
import itertools
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import nn

from kws_edge.model.features import FrontEnd
from kws_edge.model.variants import get_variant
from kws_export.data.augment import Augmentation
from kws_export.data.batches import EpochBatches
from kws_export.data.speech_commands import CLIP_SAMPLES
from kws_export.data.splits import ArrayDataset
from kws_export.kernels import compiled as kernels
from kws_export.network.fast import FastMatchboxNet
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.losses import evidential_loss
from kws_export.training.novograd import NovoGrad

RESULTS = Path(__file__).parent / "results" / "training.json"
CLASSES = 30
PLAIN = "plain torch"


def training_step(model: nn.Module, batch: int) -> Callable[[], None]:
    features, labels = torch.randn(batch, 64, 128), torch.randint(0, CLASSES, (batch,))
    optimiser = NovoGrad(model.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimiser.step()

    return step


def whole_step(model: nn.Module, batch: int) -> Callable[[], None]:
    """With augmentation and features, on noise for clips: their cost does not depend on what was recorded."""
    rng = np.random.default_rng(0)
    clips = 1024
    samples = rng.integers(-3000, 3000, (clips, CLIP_SAMPLES), dtype=np.int16)
    lengths = np.full(clips, CLIP_SAMPLES, np.int32)
    labels = rng.integers(0, CLASSES, clips)
    data = ArrayDataset(samples, lengths, labels, [""] * clips)
    noises = [rng.standard_normal(60 * CLIP_SAMPLES, dtype=np.float32) / 30]
    batches = EpochBatches(data, noises, FrontEnd(), Augmentation(), batch=batch, balance=0, seed=0, epoch=0)
    turn = itertools.cycle(range(len(batches)))
    optimiser = NovoGrad(model.parameters(), lr=1e-3)
    variant = get_variant("softmax")

    def step() -> None:
        features, y = batches[next(turn)]
        optimiser.zero_grad()
        evidential_loss(model(features), y, variant).backward()
        optimiser.step()

    return step


def process(pipe: Connection, repeat: int, batch: int) -> None:
    """One of several training processes: answers each number of steps with the seconds that they took."""
    kernels.tune_process()
    torch.set_num_threads(1)
    step = whole_step(FastMatchboxNet(CLASSES, repeat), batch)
    while steps := pipe.recv():
        pipe.send(timed(step, steps))


def timed_together(pipes: list[Connection], steps: int) -> tuple[float, float]:
    """Seconds on the wall until all processes are done, and of CPU, both per process's share of the samples."""
    for pipe in pipes:
        pipe.send(steps)
    wall, cpu = zip(*(pipe.recv() for pipe in pipes), strict=True)
    return max(wall) / len(pipes), sum(cpu) / len(pipes)


def timed(step: Callable[[], None], steps: int) -> tuple[float, float]:
    """Seconds on the wall and of CPU for `steps` steps, after one that does not count."""
    step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="per measurement")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()

    kernels.tune_process()
    if kernels.library() is None:
        parser.error("the comparison needs a C compiler (cc)")
    fast = FastMatchboxNet(CLASSES, args.repeat)
    steps = {
        PLAIN: training_step(MatchboxNet(CLASSES, args.repeat), args.batch),
        "compiled kernels": training_step(fast, args.batch),
        "whole step: augmentation, features, kernels": whole_step(fast, args.batch),
    }
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for _ in range(2):
        here, there = context.Pipe()
        workers.append(context.Process(target=process, args=(there, args.repeat, args.batch), daemon=True))
        workers[-1].start()
        pipes.append(here)
    seconds: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for name, step in steps.items():
                seconds.setdefault((name, threads), []).append(timed(step, args.steps))
        seconds.setdefault(("whole step, two processes", 2), []).append(timed_together(pipes, args.steps))
    for pipe in pipes:
        pipe.send(0)

    samples = args.steps * args.batch
    rows = []
    for (name, threads), pairs in seconds.items():
        wall, cpu = (samples / statistics.median(values) for values in zip(*pairs, strict=True))
        rows.append({"implementation": name, "threads": threads, "per_second": round(wall), "per_core": round(cpu)})
    base = {row["threads"]: row["per_core"] for row in rows if row["implementation"] == PLAIN}

    print(f"MatchboxNet-3x{args.repeat}x64, batch {args.batch}, medians of {args.rounds} rounds, samples/s\n")
    print("| implementation | threads | per second | per core | per core, × plain |")
    print("|---|---:|---:|---:|---:|")
    for row in rows:
        row["ratio"] = round(int(row["per_core"]) / int(base[row["threads"]]), 2)
        print("| {implementation} | {threads} | {per_second} | {per_core} | {ratio:.1f} |".format(**row))
    settings = {"machine": platform.machine(), "torch": torch.__version__, **vars(args)}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**settings, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
