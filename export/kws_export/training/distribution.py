"""One run on several processes, as torchrun starts them: each takes its share of every batch, gradients are averaged.

Batch normalisation sees each process's share alone.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kws_edge.errors import SettingError


@dataclass(frozen=True, slots=True)
class World:
    """This process's place among those of a torchrun launch; alone, rank 0 of 1."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0


ALONE = World()
"""The place of a process that nothing was launched with."""


@contextmanager
def joined_world(device: torch.device) -> Iterator[World]:
    """Join the process group that torchrun's environment describes, if any, and leave it at the end."""
    if "WORLD_SIZE" not in os.environ:
        yield World()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        dist.destroy_process_group()


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda`. Raises SettingError for CUDA where there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device cuda asked for, but torch finds no CUDA device here; use --device cpu or auto")
    return torch.device(name)


def own_device(device: torch.device, world: World) -> torch.device:
    """Of a machine's CUDA devices the one for this process, set up for training: matrix products are in TF32."""
    if device.type != "cuda":
        return device
    device = torch.device("cuda", world.local_rank)
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    return device


def average_gradients(model: nn.Module, clips: int, world: World) -> None:
    """Data parallelism in one all-reduce: at 77k parameters, one flat message beats any overlap.

    Each process counts by the clips of its share, which differ by one where the batch does not divide evenly.
    """
    if world.size == 1:
        return
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([*(g.reshape(-1) for g in gradients), gradients[0].new_ones(1)]) * clips
    dist.all_reduce(flat)
    mean = flat[:-1] / flat[-1]
    for gradient, part in zip(gradients, torch.split(mean, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def total(sums: list[float], world: World, device: torch.device) -> list[float]:
    """Sums over the clips of all processes, from those over each process's."""
    if world.size == 1:
        return sums
    everywhere = torch.tensor(sums, dtype=torch.float64, device=device)
    dist.all_reduce(everywhere)
    return everywhere.tolist()


def average_buffers(models: Sequence[nn.Module], world: World) -> None:
    """Make the running statistics of all processes one average."""
    if world.size == 1:
        return
    buffers: list[Tensor] = [buffer for model in models for buffer in model.buffers()]
    for buffer in buffers:
        dist.all_reduce(buffer)
        buffer.div_(world.size)
