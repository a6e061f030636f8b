"""A data set of four "words" that are tones, in the layout of Speech Commands: a network learns them in seconds."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf
import torch

from kws_export.training.prepared import prepare
from kws_export.training.recipe import Recipe
from kws_export.training.run_folder import EpochResult
from kws_export.training.trainer import Trainer

RATE = 16_000
SWEEPS: Mapping[str, tuple[float, float]] = {
    "fall": (3000.0, 400.0),
    "high": (3000.0, 3000.0),
    "low": (400.0, 400.0),
    "rise": (400.0, 3000.0),
}
"""Word → the frequencies, in Hz, at its beginning and its end."""
COUNTS = {"train": 20, "validation": 6, "test": 8}
"""Clips of each word."""

RECIPE = """
name = "tones"
variant = "softmax"
min_clips = 1
epochs = 4
batch = 8
peak_lr = 0.01

[augmentation]
time_masks = 1
band_masks = 1
cutouts = 0
gain_probability = 0
dc_probability = 0
"""
"""It learns the four words in four epochs of ten steps."""


def say(word: str, seed: int) -> np.ndarray:
    """Half a second of the word somewhere in a second of faint noise, float32 [16000]."""
    rng = np.random.default_rng(seed)
    start, end = np.array(SWEEPS[word]) * rng.uniform(0.9, 1.1)
    n = int(rng.uniform(0.4, 0.6) * RATE)
    tone = np.sin(2 * np.pi * np.cumsum(np.linspace(start, end, n)) / RATE) * np.hanning(n)
    x = 1e-3 * rng.standard_normal(RATE)
    onset = rng.integers(RATE - n)
    x[onset : onset + n] += rng.uniform(0.1, 0.5) * tone
    return x.astype(np.float32)


def write(root: Path) -> Path:
    """Write the data set, its lists and a background noise; every fourth training clip is shorter than a second."""
    lists: dict[str, list[str]] = {split: [] for split in COUNTS}
    for w, word in enumerate(SWEEPS):
        (root / word).mkdir(parents=True)
        for s, (split, count) in enumerate(COUNTS.items()):
            for i in range(count):
                name = f"{word}/{1000 * s + i:08x}_nohash_0.wav"
                x = say(word, seed=10_000 * w + 1000 * s + i)
                sf.write(root / name, x[:12_000] if split == "train" and i % 4 == 0 else x, RATE)
                lists[split].append(name)
    for split, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt")):
        (root / file).write_text("\n".join(lists[split]) + "\n")
    (root / "_background_noise_").mkdir()
    noise = 0.01 * np.random.default_rng(0).standard_normal(2 * RATE)
    sf.write(root / "_background_noise_" / "hiss.wav", noise, RATE)
    return root


def recipe(**changes: Any) -> Recipe:
    """RECIPE with changes."""
    return Recipe.from_dict({**tomllib.loads(RECIPE), **changes})


def trainer(
    root: Path,
    folder: Path,
    settings: Recipe,
    *,
    negatives: Sequence[str] = (),
    cache: Path | None = None,
    **options: Any,
) -> Trainer:
    """A trainer whose decoded clips are beside the data set, or in another cache."""
    data = prepare(settings, root, cache or root.parent / "cache", negatives, folder=folder)
    return Trainer(settings, data, folder, **options)


def run(trainer: Trainer) -> list[EpochResult]:
    """Train to the end; what the epochs reported."""
    results: list[EpochResult] = []
    trainer.run(lambda step, steps, loss: None, results.append)
    return results


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs are the same to the bit only where they have the same number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
