"""The training loop: one recipe on prepared data to one folder with its checkpoints, resumable at any epoch.

Under torchrun each process takes its share of every batch (distribution.py). On CUDA, matrix products are in TF32 and
all else is in float32.
"""

import copy
import logging
import math
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from kws_edge.errors import SettingError
from kws_edge.model.variants import Variant, get_variant
from kws_export.data.batches import EpochBatches
from kws_export.training.averaging import follow
from kws_export.training.checkpoint import new_network, starting_network
from kws_export.training.distillation import Teachers
from kws_export.training.distribution import ALONE, World, average_buffers, average_gradients, own_device, total
from kws_export.training.losses import evidential_loss, kl_weight
from kws_export.training.mining import hard_windows
from kws_export.training.mixup import blended
from kws_export.training.novograd import NovoGrad
from kws_export.training.prepared import TrainingData
from kws_export.training.recipe import Recipe
from kws_export.training.run_folder import EpochResult, RunFolder, collapse
from kws_export.training.schedule import warmup_hold_decay
from kws_export.training.start import take_weights

BETAS = (0.95, 0.5)

GRADIENT_LIMIT = 100.0
"""The norm to which a longer gradient is scaled down. In sound training the norm is 0.02 to 3, whatever the variant.
But the Dirichlet cross-entropy with φ(e) = e has a gradient of about e^(-z_y): unbounded, one bad clip would stay in
NovoGrad's running ‖g‖² and freeze the layers for dozens of steps, or for good once the square overflows."""

MAX_SKIPPED = 10
"""A step whose gradient is not finite is skipped; so many in a row end the run with an error."""

_log = logging.getLogger(__name__)


class Trainer:
    """One run of one recipe.

    Attributes
    ----------
    model, judged : the network that is trained, and the one that is validated and saved: the same, or the moving
        average of its weights where the recipe asks for that.
    epoch, best : how many epochs are done, and the best validation accuracy so far.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData,
        folder: Path,
        *,
        device: torch.device | None = None,
        world: World = ALONE,
        workers: int = 0,
    ) -> None:
        """Build the network, and take up `folder`'s run where it stopped, if it holds one.

        Raises
        ------
        SettingError, ModelError : the teacher cannot be used, or `folder` holds a run of another recipe.
        """
        recipe = replace(recipe, about=recipe.about.or_else(data.about))
        self.recipe, self.data, self.world, self.workers = recipe, data, world, workers
        self.device = own_device(device or torch.device("cpu"), world)
        self.variant: Variant = get_variant(recipe.variant)
        self.run_folder = RunFolder(folder, recipe, data.labels, data.front_end)
        seed_everything(recipe.seed)
        self.model = new_network(recipe, data.labels, data.front_end).to(self.device)
        self.teachers = None
        if recipe.distillation.teachers:
            self.teachers = Teachers(recipe.distillation, data.labels, data.front_end, self.device)
        self.judged = copy.deepcopy(self.model) if recipe.average else self.model
        self.optimiser = NovoGrad(self.model.parameters(), lr=recipe.peak_lr, betas=BETAS, weight_decay=recipe.decay)
        self._lost: list[str] | None = None
        self.epoch, self.best, self._skipped = 0, -1.0, 0  # -1: below any accuracy, so that the first is kept
        if self.run_folder.has_run:
            if self._resume() != data.fingerprint and world.is_main:
                _log.warning(
                    "%s was trained on other recordings until epoch %d; it goes on with those that are given now",
                    folder, self.epoch,
                )  # fmt: skip
        elif recipe.start:
            start = data.start or starting_network(recipe, data.front_end)  # the folder had a run when it was prepared
            take_weights(self.model, *start, data, self.variant)
            self.judged.load_state_dict(self.model.state_dict())

    def run(self, progress: Callable[[int, int, float], None], report: Callable[[EpochResult], None]) -> None:
        """Train to the recipe's last epoch.

        Parameters
        ----------
        progress : called after each step with (step, steps, loss).
        report : called after each epoch, once its checkpoint is on disk.

        Raises
        ------
        SettingError : another process trains in the folder; the loss or the gradients are no longer finite; at the end
            there is a class that the network never names.
        """
        with self.run_folder.held() if self.world.is_main else nullcontext():
            if self.run_folder.has_run:
                self._resume()  # from where another process may have taken it meanwhile
            while self.epoch < self.recipe.epochs:
                result = self._train_epoch(progress)
                self.epoch += 1
                if self.world.is_main:
                    self._save(result)
                    report(result)
            self._refuse_collapse()

    def _train_epoch(self, progress: Callable[[int, int, float], None]) -> EpochResult:
        r, started = self.recipe, time.perf_counter()
        self._mine()
        batches = EpochBatches(
            self.data.train, self.data.noises, self.data.front_end, r.augmentation,
            batch=r.batch, balance=r.balance, seed=r.seed, epoch=self.epoch, negatives=self.data.negatives,
            extra_frames=r.extra_frames, rank=self.world.rank, world_size=self.world.size,
        )  # fmt: skip
        steps, weight = len(batches), kl_weight(self.variant, self.epoch, r.epochs, r.kl_end)
        loss_sum = correct = words = seen = lr = 0.0
        self.model.train()
        for step, (features, labels) in enumerate(batches.loader(self.workers)):
            done = self.epoch * steps + step
            lr = warmup_hold_decay(
                done,
                r.epochs * steps,
                peak=r.peak_lr,
                final=r.final_lr,
                warmup=r.warmup,
                hold=r.hold,
            )
            loss, logits = self._step(features.to(self.device), labels.to(self.device), weight, lr, done)
            loss_sum += loss * len(labels)
            word = labels >= 0
            correct += int((logits.argmax(1).cpu() == labels)[word].sum())
            words += int(word.sum())
            seen += len(labels)
            progress(step + 1, steps, loss)
        loss_sum, correct, words, seen = total([loss_sum, correct, words, seen], self.world, self.device)
        average_buffers([self.model, self.judged] if self.recipe.average else [self.model], self.world)
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

    def _mine(self) -> None:
        """Find the negatives that are hard for the judged weights, which a run that goes on has again."""
        negatives, mix = self.data.negatives, self.recipe.negatives
        if negatives and mix.hard:
            front_end = self.data.front_end
            negatives.hard, _ = hard_windows(self.judged, self.variant, negatives.others, front_end, mix.hard_count)

    def _step(self, features: Tensor, labels: Tensor, kl: float, lr: float, done: int) -> tuple[float, Tensor]:
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.zero_grad(set_to_none=True)
        blend = None
        if self.recipe.mixup:
            blend = blended(features, labels, self.recipe.mixup, (self.recipe.seed, done, self.world.rank))
            features = blend.features
        windows = self.recipe.windows
        logits = self.model(features) if windows == 1 else self.model.window_logits(features, windows)
        lesson = self.teachers.lesson(features) if self.teachers else None
        loss = evidential_loss(logits, labels, self.variant, kl, lesson)
        if blend:
            loss = torch.lerp(evidential_loss(logits, blend.others, self.variant, kl, lesson), loss, blend.weight)
        value = float(loss.detach())
        if not np.isfinite(value):
            raise SettingError(f"the loss became {value} in epoch {self.epoch + 1}; lower peak_lr in the recipe")
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(self.model, len(labels), self.world)
        if bound_gradients(self.model, GRADIENT_LIMIT):
            self.optimiser.step()
            self._skipped = 0
            if self.recipe.average:
                follow(self.judged, self.model, self.recipe.average, done)
        else:
            self._skip()
        return value, logits.detach() if windows == 1 else logits.detach().mean(1)

    def _skip(self) -> None:
        self._skipped += 1
        if self._skipped == MAX_SKIPPED:
            raise SettingError(
                f"the gradient overflowed in {MAX_SKIPPED} steps in a row, up to epoch {self.epoch + 1}; "
                "lower peak_lr in the recipe"
            )
        _log.warning("epoch %d: a step was skipped, as its gradient is not finite", self.epoch + 1)

    def _validate(self) -> tuple[float, float]:
        features, labels = self.data.validation
        logits = predict(self.judged, features, self.device)
        loss, hit = evidential_loss(logits, labels, self.variant), named(logits, labels)
        self._lost = [self.data.labels[i] for i in np.unique(labels.numpy()).tolist() if not hit[labels == i].any()]
        return float(loss), float(hit.double().mean())

    def _refuse_collapse(self) -> None:
        """Raise SettingError where a class of the validation clips is never named: it has no evidence."""
        if self._lost is None:  # as of a run from before it was kept
            self._validate()
        if problem := collapse(self.recipe, self.epoch, self._lost or ()):
            raise SettingError(f"{problem}. The weights are in {self.run_folder.path}, for a look")

    def _save(self, result: EpochResult) -> None:
        improved = result.validation_accuracy > self.best
        self.best = max(self.best, result.validation_accuracy)
        trained = {"trained": self.model.state_dict()} if self.recipe.average else {}
        optimiser = self.optimiser.state_dict()
        self.run_folder.save(
            result, self.judged.state_dict(), improved=improved, best=self.best, **trained, optimiser=optimiser,
            data=self.data.fingerprint, lost=self._lost,
        )  # fmt: skip

    def _resume(self) -> str:
        """Take up the run where it stopped; the fingerprint of the data that it was trained on."""
        last = self.run_folder.load()
        self.judged.load_state_dict(last["model"])
        if self.recipe.average:
            self.model.load_state_dict(last["trained"])
        self.optimiser.load_state_dict(last["optimiser"])
        self.epoch, self.best, self._lost = last["epoch"], last["best"], last.get("lost")
        fingerprint: str = last.get("data", self.data.fingerprint)  # older runs have none
        return fingerprint


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


def named(logits: Tensor, labels: Tensor) -> Tensor:
    """Which clips are given their own label: its logit is above all others; a tie is none. [n, K], [n] → bool [n]."""
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return (own > others).all(1)


def seed_everything(seed: int) -> None:
    """Seed torch, numpy's legacy generator and random: the weights' initialisation and whatever a library draws."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
