"""From a split of the data set to batches of MFCC; every clip of every epoch is a pure function of the seed.

Because a clip's randomness depends on (seed, epoch, position) alone, a run resumes exactly after a kill, and the global
batch is the same however many processes or loader workers share it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from kws_edge.arrays import F32, I16, I64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError, WorkerError
from kws_edge.model.features import FrontEnd
from kws_export.data.augment import Augmentation, at_speed, in_stream, mfcc_transforms, sample_transforms, transformed
from kws_export.data.features import window_features
from kws_export.data.negatives import NO_WORD, Negatives
from kws_export.data.speech_commands import CLIP_SAMPLES
from kws_export.data.splits import ArrayDataset

PATIENCE: Final = 600.0
"""Seconds for one batch of a worker process, after which it counts as failed; a batch takes less than one."""


def clip_features(samples: I16, length: int, front_end: FrontEnd) -> F32:
    """A clip's features as the device computes them: int16 [n], of which `length` count → [coefficients, frames]."""
    return window_features(as_float(samples[:length]), front_end)


def split_features(data: ArrayDataset, front_end: FrontEnd) -> Tensor:
    """Features of a whole split, without augmentation: float32 [n, coefficients, frames].

    Raises
    ------
    SettingError : a clip is shorter than one frame.
    """
    _refuse_short(data, front_end)
    return subset_features(data, np.arange(len(data)), front_end)


def subset_features(data: ArrayDataset, clips: I64, front_end: FrontEnd) -> Tensor:
    """Features of some of a split's clips, [n] indices, without augmentation: float32 [n, coefficients, frames]."""
    features = [clip_features(data.samples[i], int(data.lengths[i]), front_end) for i in clips]
    return torch.from_numpy(np.stack(features))


class EpochBatches(Dataset[tuple[Tensor, Tensor]]):
    """One epoch's batches, or this process's share of each: item i is (features, labels).

    features is float32 [b, coefficients, frames], labels int64 [b].
    """

    def __init__(
        self,
        data: ArrayDataset,
        noises: Sequence[F32],
        front_end: FrontEnd,
        augmentation: Augmentation,
        *,
        batch: int,
        balance: float,
        seed: int,
        epoch: int,
        negatives: Negatives | None = None,
        extra_frames: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Draw the epoch's clips: as many as the split has, rounded down to whole batches, then the negatives.

        Parameters
        ----------
        extra_frames : by which what is made is longer than a window of the front end.

        Raises
        ------
        SettingError : a clip is shorter than one frame, at the highest speed that it may be played at; or the batch is
            too small for its negatives or the processes; or there is nothing to be a word's neighbours.
        """
        _refuse_short(data, front_end, augmentation.speed[1] if augmentation.speed_probability > 0 else 1.0)
        neighbours = augmentation.stream_probability > 0 and augmentation.neighbour_probability > 0
        if negatives and neighbours and not negatives.others:
            raise SettingError(
                f"neighbour_probability={augmentation.neighbour_probability}, but the negatives have no recordings; "
                "expected some, or 0"
            )
        front_end = replace(front_end, frames=front_end.frames + extra_frames)
        self.data, self.front_end, self.augmentation = data, front_end, augmentation
        self.of_clips = sample_transforms(augmentation, noises)
        self.of_streams = sample_transforms(augmentation, noises, in_stream=True)
        self.of_mfcc = mfcc_transforms(augmentation)
        self.seed, self.epoch, self.negatives = seed, epoch, negatives
        self.stream_samples = front_end.window + (front_end.frames - 1) * front_end.hop
        extra = round(batch * negatives.mix.share) if negatives else 0
        if batch - extra < 1 or batch < world_size:
            raise SettingError(f"batch={batch}, {extra} of it negatives, for {world_size} processes; expected more")
        order = draw_epoch(data.labels, balance, np.random.default_rng([seed, epoch]))
        self.steps = max(1, len(order) // (batch - extra))
        words = order[: self.steps * (batch - extra)].reshape(self.steps, -1)
        self.order = np.concatenate([words, np.full((len(words), extra), NO_WORD)], axis=1)
        self.columns = np.arange(self.order.shape[1])[rank::world_size]  # so each has its part of the negatives

    def __len__(self) -> int:
        """Optimiser steps in the epoch."""
        return self.steps

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        """Make one batch; the work of a loader worker."""
        features = np.stack([self._window(step, int(column)) for column in self.columns])
        clips = self.order[step, self.columns]
        labels = np.where(clips == NO_WORD, NO_WORD, self.data.labels[clips])
        return torch.from_numpy(features), torch.from_numpy(labels)

    def _window(self, step: int, column: int) -> F32:
        """The features of one window: a word or none, changed as the recipe says."""
        clip, settings = self.order[step, column], self.augmentation
        rng = np.random.Generator(np.random.PCG64([self.seed, self.epoch, step, column]))
        streamed = settings.stream_probability > 0 and rng.random() < settings.stream_probability
        if clip == NO_WORD and self.negatives:
            x = self._without_word(self.negatives, rng, streamed)
        else:
            x = self._word(clip, rng, streamed)
        x = transformed(x, self.of_streams if streamed else self.of_clips, rng)
        return transformed(window_features(x, self.front_end), self.of_mfcc, rng)

    def _word(self, clip: int, rng: np.random.Generator, streamed: bool) -> F32:
        x = as_float(self.data.samples[clip][: int(self.data.lengths[clip])])
        if (speed := self._speed(rng)) != 1:
            x = at_speed(x, speed, CLIP_SAMPLES)
        if not streamed:
            return x
        neighbours = None
        if self.negatives and rng.random() < self.augmentation.neighbour_probability:
            neighbours = self.negatives.other(self.stream_samples, rng)
        before, after = (round(ms * SAMPLE_RATE / 1000) for ms in self.augmentation.stream_margin_ms)
        return in_stream(x, self.stream_samples, rng, neighbours, (before, after))

    def _without_word(self, negatives: Negatives, rng: np.random.Generator, streamed: bool) -> F32:
        length = self.stream_samples if streamed else CLIP_SAMPLES
        speed = self._speed(rng)
        x = negatives.draw(rng, max(CLIP_SAMPLES, math.ceil(length * speed)))
        return at_speed(x, speed, length) if speed != 1 else x[:length]

    def _speed(self, rng: np.random.Generator) -> float:
        settings = self.augmentation
        if settings.speed_probability > 0 and rng.random() < settings.speed_probability:
            return rng.uniform(*settings.speed)
        return 1.0

    def loader(self, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches in order, made by `workers` processes ahead of the network; 0 makes them in line.

        Raises
        ------
        WorkerError : a process that makes them ended, or gave nothing for `PATIENCE` seconds.
        """
        arrays = DataLoader(
            _Arrays(self),
            batch_size=None,
            num_workers=workers,
            collate_fn=_as_it_is,
            timeout=PATIENCE if workers else 0,
        )
        batches = iter(arrays)
        for step in range(len(self)):
            try:
                features, labels = next(batches)
            except RuntimeError as error:
                if "DataLoader" not in str(error):
                    raise
                raise WorkerError(
                    f"a process that makes batches failed at step {step + 1} of {len(self)}: {_first_line(error)}; "
                    "expected memory for all of them: fewer --workers, or 0 for none"
                ) from error
            made = torch.from_numpy(features), torch.from_numpy(labels)
            yield (made[0].pin_memory(), made[1].pin_memory()) if torch.cuda.is_available() else made


class _Arrays(Dataset[tuple[F32, I64]]):
    """The batches as arrays, which go through a pipe.

    Tensors would go through shared memory: where that is small, as in a container, a worker fails to send one, says so
    on standard error, and the training waits for it for ever.
    """

    def __init__(self, batches: EpochBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> tuple[F32, I64]:
        features, labels = self.batches[step]
        return features.numpy(), labels.numpy()


def _as_it_is(batch: Any) -> Any:
    return batch


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def draw_epoch(labels: I64, balance: float, rng: np.random.Generator) -> I64:
    """Which clips an epoch shows, in order: n indices into `labels`, but for what rounding each class down leaves out.

    Every class gets a share proportional to its count to the power 1 - balance, one clip at least. Within a class, each
    clip is drawn equally often, give or take one.
    """
    classes, counts = np.unique(labels, return_counts=True)
    share = counts ** (1.0 - balance)
    quota = np.maximum(1, np.floor(share / share.sum() * len(labels))).astype(int)  # n / n may be below 1
    drawn = []
    for cls, count, n in zip(classes, counts, quota, strict=True):
        members = np.flatnonzero(labels == cls)
        whole, rest = divmod(int(n), int(count))
        drawn.append(np.concatenate([np.tile(members, whole), rng.permutation(members)[:rest]]))
    return rng.permutation(np.concatenate(drawn))


def _refuse_short(data: ArrayDataset, front_end: FrontEnd, speed: float = 1.0) -> None:
    """Raise SettingError where a clip has no frame, played so many times as fast or slower."""
    shortest = int(np.argmin(data.lengths))
    fewest = math.ceil(front_end.window * max(1.0, speed))
    if data.lengths[shortest] < fewest:
        faster = f" at {speed:g} times the speed" if speed > 1 else ""
        raise SettingError(
            f"{data.names[shortest]} has {data.lengths[shortest]} samples; expected {fewest} or more, a frame{faster}"
        )
