"""The training loop: one recipe to one folder with its checkpoints, resumable at any epoch.

A run folder holds `last.pt` (everything to go on exactly), `best.pt` (the weights with the best validation accuracy
so far) and `history.jsonl` (one line an epoch). Files are replaced atomically, so a kill at any moment leaves a run
that resumes. Under torchrun each process takes its share of every batch and gradients are averaged; batch
normalisation sees each process's share alone. On CUDA, matrix products are in TF32 and all else is in float32.
"""

import copy
import io
import json
import logging
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.variants import Variant, get_variant
from kws_export.data.batches import EpochBatches, split_features, subset_features
from kws_export.data.negatives import Negatives, load_recordings
from kws_export.data.speech_commands import background, index, words_with
from kws_export.data.splits import ArrayDataset, as_float, load_split
from kws_export.graph.read import measure_statistics
from kws_export.network.widen import widen
from kws_export.training.checkpoint import Trained, load_checkpoint, new_network, weights_file
from kws_export.training.distillation import Teacher
from kws_export.training.losses import evidential_loss, kl_weight
from kws_export.training.novograd import NovoGrad
from kws_export.training.recipe import Recipe
from kws_export.training.schedule import warmup_hold_decay

BETAS = (0.95, 0.5)

GRADIENT_LIMIT = 100.0
"""The norm to which a longer gradient is scaled down. In sound training the norm is 0.02 to 3, whatever the variant.
But the Dirichlet cross-entropy with φ(e) = e has a gradient of about e^(-z_y): unbounded, one bad clip would stay in
NovoGrad's running ‖g‖² and freeze the layers for dozens of steps, or for good once the square overflows."""

MAX_SKIPPED = 10
"""A step whose gradient is not finite is skipped; so many in a row end the run with an error."""

STATISTICS_CLIPS = 512
"""Training clips on which the statistics that an ONNX file lacks are measured."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One line of history.jsonl. Losses are means over the epoch's clips, accuracies fractions."""

    epoch: int
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    learning_rate: float
    kl_weight: float
    samples_per_second: float


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


class Trainer:
    """One run of one recipe."""

    def __init__(
        self,
        recipe: Recipe,
        data_root: Path,
        folder: Path,
        *,
        cache: Path,
        device: torch.device | None = None,
        world: World = World(),
        workers: int = 0,
        negatives: Sequence[str] = (),
    ) -> None:
        """Load the data, build the network, and take up `folder`'s run where it stopped, if it holds one.

        `negatives` are the recordings without a word that a recipe with negatives draws from: folders, files, globs.

        Raises
        ------
        SettingError, ModelError : the data, the start or the teacher cannot be used, or `folder` holds a run of another
            recipe.
        """
        self.recipe, self.folder, self.world, self.workers = recipe, folder, world, workers
        self.device = device or torch.device("cpu")
        if self.device.type == "cuda":
            self.device = torch.device("cuda", world.local_rank)
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high")
        self.front_end = FrontEnd()
        self.variant: Variant = get_variant(recipe.variant)
        self.labels = recipe.labels or words_with(index(data_root), recipe.min_clips)
        if len(self.labels) < 2:
            raise SettingError(
                f"{len(self.labels)} words in {data_root} have more than min_clips={recipe.min_clips} training clips; "
                "expected at least 2: lower min_clips in the recipe, or name its labels"
            )
        for source in filter(None, (recipe.start, recipe.distillation.teacher)):
            weights_file(source)  # before the long decoding, not after
        self.train_data: ArrayDataset = load_split(data_root, "train", self.labels, cache)
        validation = load_split(data_root, "validation", self.labels, cache)
        self.validation = split_features(validation, self.front_end), torch.from_numpy(validation.labels)
        self.noises = _noises(recipe, data_root)
        self.negatives = None
        if recipe.negatives.share > 0:
            by_pattern = load_recordings(negatives, data_root)
            others = [recording for recordings in by_pattern for recording in recordings]
            self.negatives = Negatives(self.train_data, list(self.noises), others, recipe.negatives)
            joined = [np.concatenate(recordings) for recordings in by_pattern if recordings]
            self.noises += [as_float(j) for j in joined if len(j) >= self.front_end.max_samples]
        elif negatives:
            raise SettingError(f"recordings without a word given, but recipe {recipe.name} has no [negatives] share")
        seed_everything(recipe.seed)
        self.model = new_network(recipe, self.labels, self.front_end).to(self.device)
        self.teacher = None
        if recipe.distillation.teacher:
            self.teacher = Teacher(recipe.distillation, self.labels, self.front_end, self.device)
        self.judged = copy.deepcopy(self.model) if recipe.average else self.model
        self.optimiser = NovoGrad(self.model.parameters(), lr=recipe.peak_lr, betas=BETAS, weight_decay=recipe.decay)
        self.epoch, self.best, self._skipped = 0, -1.0, 0  # -1: below any accuracy, so that the first is kept
        if (folder / "last.pt").exists():
            self._resume()
        elif recipe.start:
            self._take_weights(weights_file(recipe.start))
            self.judged.load_state_dict(self.model.state_dict())

    def run(self, progress: Callable[[int, int, float], None], report: Callable[[EpochResult], None]) -> None:
        """Train to the recipe's last epoch.

        Parameters
        ----------
        progress : called after each step with (step, steps, loss).
        report : called after each epoch, once its checkpoint is on disk.

        Raises
        ------
        SettingError : another process trains in the folder; the loss or the gradients are no longer finite.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with _alone(self.folder) if self.world.is_main else nullcontext():
            if (self.folder / "last.pt").exists():
                self._resume()  # from where another process may have taken it meanwhile
            while self.epoch < self.recipe.epochs:
                result = self._train_epoch(progress)
                self.epoch += 1
                if self.world.is_main:
                    self._save(result)
                    report(result)

    def _train_epoch(self, progress: Callable[[int, int, float], None]) -> EpochResult:
        r, started = self.recipe, time.perf_counter()
        batches = EpochBatches(
            self.train_data, self.noises, self.front_end, r.augmentation,
            batch=r.batch, balance=r.balance, seed=r.seed, epoch=self.epoch, negatives=self.negatives,
            rank=self.world.rank, world_size=self.world.size,
        )  # fmt: skip
        steps, weight = len(batches), kl_weight(self.variant, self.epoch, r.epochs)
        loss_sum = correct = words = seen = lr = 0.0
        self._skipped = 0
        self.model.train()
        for step, (features, labels) in enumerate(batches.loader(self.workers)):
            lr = warmup_hold_decay(
                self.epoch * steps + step,
                r.epochs * steps,
                peak=r.peak_lr,
                final=r.final_lr,
                warmup=r.warmup,
                hold=r.hold,
            )
            loss, logits = self._step(features.to(self.device), labels.to(self.device), weight, lr)
            loss_sum += loss * len(labels)
            word = labels >= 0
            correct += int((logits.argmax(1).cpu() == labels)[word].sum())
            words += int(word.sum())
            seen += len(labels)
            progress(step + 1, steps, loss)
        loss_sum, correct, words, seen = self._total([loss_sum, correct, words, seen])
        validation_loss, validation_accuracy = self._validate()
        return EpochResult(
            epoch=self.epoch + 1,
            train_loss=loss_sum / seen,
            train_accuracy=correct / words,
            validation_loss=validation_loss,
            validation_accuracy=validation_accuracy,
            learning_rate=lr,
            kl_weight=weight,
            samples_per_second=seen / (time.perf_counter() - started),
        )

    def _step(self, features: Tensor, labels: Tensor, kl: float, lr: float) -> tuple[float, Tensor]:
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.zero_grad(set_to_none=True)
        logits = self.model(features)
        lesson = self.teacher.lesson(features) if self.teacher else None
        loss = evidential_loss(logits, labels, self.variant, kl, lesson)
        value = float(loss.detach())
        if not np.isfinite(value):
            raise SettingError(f"the loss became {value} in epoch {self.epoch + 1}; lower peak_lr in the recipe")
        loss.backward()  # type: ignore[no-untyped-call]
        self._average_gradients(len(labels))
        if bound_gradients(self.model, GRADIENT_LIMIT):
            self.optimiser.step()
            self._skipped = 0
            self._average_weights()
        else:
            self._skip()
        return value, logits.detach()

    @torch.no_grad()
    def _average_weights(self) -> None:
        """Move the weights that are judged towards those that are trained, statistics included."""
        if self.recipe.average:
            judged, trained = (list(m.state_dict().values()) for m in (self.judged, self.model))
            torch._foreach_lerp_(judged, trained, 1 - self.recipe.average)

    def _skip(self) -> None:
        self._skipped += 1
        if self._skipped == MAX_SKIPPED:
            raise SettingError(
                f"the gradient overflowed in {MAX_SKIPPED} steps in a row of epoch {self.epoch + 1}; "
                "lower peak_lr in the recipe"
            )
        _log.warning("epoch %d: a step was skipped, as its gradient is not finite", self.epoch + 1)

    def _average_gradients(self, clips: int) -> None:
        """Data parallelism in one all-reduce: at 77k parameters, one flat message beats any overlap.

        Each process counts by the clips of its share, which differ by one where the batch does not divide evenly.
        """
        if self.world.size == 1:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        one = torch.ones(1, device=self.device)
        flat = torch.cat([*(g.reshape(-1) for g in gradients), one]) * clips
        dist.all_reduce(flat)
        mean = flat[:-1] / flat[-1]
        for gradient, part in zip(gradients, torch.split(mean, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def _total(self, sums: list[float]) -> list[float]:
        """Sum over the processes, at an epoch's end; their running statistics become one average."""
        if self.world.size == 1:
            return sums
        total = torch.tensor(sums, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        buffers = [*self.model.buffers(), *(self.judged.buffers() if self.recipe.average else ())]
        for buffer in buffers:
            dist.all_reduce(buffer)
            buffer.div_(self.world.size)
        return total.tolist()

    def _validate(self) -> tuple[float, float]:
        features, labels = self.validation
        logits = predict(self.judged, features, self.device)
        loss = evidential_loss(logits, labels, self.variant)
        return float(loss), float((logits.argmax(1) == labels).double().mean())

    def _save(self, result: EpochResult) -> None:
        weights = self.judged.state_dict()
        shared = {"recipe": self.recipe.to_dict(), "labels": self.labels, "front_end": self.front_end.to_dict()}
        if result.validation_accuracy > self.best:
            self.best = result.validation_accuracy
            best = {**shared, "model": weights, "epoch": self.epoch, "validation_accuracy": self.best}
            _write(self.folder / "best.pt", best)
        optimiser = self.optimiser.state_dict()
        trained = {"trained": self.model.state_dict()} if self.recipe.average else {}
        last = {**shared, "model": weights, **trained, "optimiser": optimiser, "epoch": self.epoch, "best": self.best}
        history = self.folder / "history.jsonl"
        kept = history.read_text().splitlines()[: self.epoch - 1] if history.exists() else []
        replace_file(history, "\n".join([*kept, json.dumps(asdict(result))]).encode() + b"\n")
        _write(self.folder / "last.pt", last)

    def _take_weights(self, path: Path) -> None:
        """Start from a trained network; the words that it does not know get the random weights they have."""
        trained = Trained.load(path, self.front_end)
        source, labels = trained.network, trained.labels
        if source.repeat != self.recipe.repeat:
            raise SettingError(f"{path} has repeat={source.repeat}; expected {self.recipe.repeat}")
        factor, rest = divmod(self.recipe.channels, source.channels)
        if rest:
            raise SettingError(
                f"{path} has channels={source.channels}; expected {self.recipe.channels}, or what goes into it without "
                "a rest, to be made wider"
            )
        if path.suffix == ".onnx":
            some = np.linspace(0, len(self.train_data) - 1, num=min(STATISTICS_CLIPS, len(self.train_data)), dtype=int)
            measure_statistics(source, subset_features(self.train_data, some, self.front_end))
        if factor > 1:
            _log.warning(
                "%s is made wider, from %d to %d channels, and must train again",
                path,
                source.channels,
                self.recipe.channels,
            )
            source = widen(source, factor)
        weights = source.state_dict()
        own, known = self.model.classifier, [label for label in self.labels if label in labels]
        rows = [labels.index(label) for label in known]
        for name, values in (("weight", own.weight.detach().clone()), ("bias", own.bias.detach().clone())):
            values[[self.labels.index(label) for label in known]] = weights[f"classifier.{name}"][rows].to(self.device)
            weights[f"classifier.{name}"] = values
        self.model.load_state_dict(weights)
        if len(known) < len(self.labels):
            new = ", ".join(label for label in self.labels if label not in labels)
            _log.warning("%s does not know %s: these outputs start from random weights", path, new)

    def _resume(self) -> None:
        path = self.folder / "last.pt"
        last = load_checkpoint(path)
        if not {"optimiser", "epoch", "best"} <= last.keys():
            raise SettingError(f"{path} cannot be resumed, as it holds only weights; expected a run's own last.pt")
        if changed := self.recipe.differences(Recipe.from_dict(last["recipe"])):
            raise SettingError(
                f"{self.folder} holds a run of another recipe, which differs in {', '.join(changed)}; "
                "give another folder, or remove it"
            )
        if tuple(last["labels"]) != tuple(self.labels) or last["front_end"] != self.front_end.to_dict():
            raise SettingError(
                f"{self.folder} holds a run on other words or features ({', '.join(last['labels'])}), so the data "
                "have changed since; give another folder, or remove it"
            )
        self.judged.load_state_dict(last["model"])
        if self.recipe.average:
            self.model.load_state_dict(last["trained"])
        self.optimiser.load_state_dict(last["optimiser"])
        self.epoch, self.best = last["epoch"], last["best"]


def bound_gradients(model: nn.Module, limit: float) -> bool:
    """Scale a model's gradients down to the joint norm `limit` where they are longer.

    Returns
    -------
    False, with the gradients as they were, where their norm is NaN or infinite. It is taken in float64, in which no
    finite float32 has a square that overflows.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = float(torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]).norm())
    if not math.isfinite(norm):
        return False
    if norm > limit:
        torch._foreach_mul_(gradients, limit / norm)
    return True


def predict(model: nn.Module, features: Tensor, device: torch.device | None = None, batch: int = 64) -> Tensor:
    """Logits of many clips in evaluation mode: float32 [n, coefficients, frames] → float32 [n, classes] on the CPU."""
    model.eval()
    with torch.inference_mode():
        parts = [model(part.to(device)).float().cpu() for part in torch.split(features, batch)]
    return torch.cat(parts)


def seed_everything(seed: int) -> None:
    """Seed torch, numpy's legacy generator and random: the weights' initialisation and whatever a library draws."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _noises(recipe: Recipe, data_root: Path) -> list[F32]:
    """The background noises, where the recipe draws from them."""
    in_negatives = recipe.negatives.share > 0 and recipe.negatives.noise > 0
    if not (in_negatives or recipe.augmentation.background_probability > 0):
        return []
    noises = background(data_root)
    for name, noise in noises.items():
        if noise.size < FrontEnd().max_samples:
            raise SettingError(
                f"background noise {name} in {data_root} has {noise.size} samples; expected 1.3 s or more"
            )
    return list(noises.values())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder, until this one is done or gone. Unix only."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(f"another process trains in {folder}; wait for it, or give another folder") from None
        except OSError:  # a file system without locks
            _log.warning("cannot lock %s: make sure that nothing else trains there", folder)
        yield


def _write(path: Path, checkpoint: dict[str, Any]) -> None:
    buffer = io.BytesIO()  # not straight to the file: torch reports a full disk as a RuntimeError of its own
    torch.save(checkpoint, buffer)
    replace_file(path, buffer.getvalue())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole: whoever looks, or a power cut at any moment, finds the old content or the new."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # else a power cut can leave the new name without its content
    partial.replace(path)
