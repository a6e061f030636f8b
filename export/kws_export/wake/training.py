"""Train the whole network from the shipped one, judge every epoch on held-out streams, keep the best.

The folder holds `last.pt` (everything to go on exactly), `best.pt` and `history.jsonl`, as that of `kws-export train`.
"""

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import I64
from kws_edge.errors import KwsEdgeError, SettingError
from kws_edge.files import replace_file
from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Metadata
from kws_edge.model.variants import get_variant
from kws_export.graph.read import load_network, measure_statistics
from kws_export.network.fast import FastMatchboxNet
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.averaging import follow
from kws_export.training.losses import evidential_loss
from kws_export.training.novograd import NovoGrad
from kws_export.training.run_folder import write_checkpoint
from kws_export.training.schedule import warmup_hold_decay
from kws_export.training.trainer import BETAS, GRADIENT_LIMIT, bound_gradients, seed_everything
from kws_export.wake.held_out import HeldOut
from kws_export.wake.settings import WakeSettings
from kws_export.wake.whole_stream import HOP, log_odds, peak_places, smoothed, stream_logits
from kws_export.wake.windows import Windows

VARIANT = "softmax"
UNKNOWN = "_unknown_"
"""All that is no word, other speech and sounds alike: to tell these apart is not what the network is for."""
JUDGED_FROM = 0.5
"""From which part of the run on an epoch may be the best: earlier ones never were."""
MINED = 1500
"""Windows of training speech on which the network fires most, which each epoch but the first adds to the training,"""
SPACING = 4
"""so many hops apart at least."""
FIRST_SHARE = 0.3
"""How much of the first network's weights stays in what is judged and released (`between`)."""
STATISTICS_WINDOWS = 384
"""On which the statistics that an ONNX file lacks are measured."""
USELESS = 0.98
"""A word that is missed this often at the limit was not learnt."""

_log = logging.getLogger(__name__)


class CollapseError(KwsEdgeError):
    """The run ended without having learnt a word."""


class Memory:
    """What the first network knows, kept while its weights learn something new: its answers are to be told still.

    With a few dozen speakers of one word, the features would else become those that tell these speakers' takes, and
    serve no other. Source: Z. Li and D. Hoiem 2016, "Learning without Forgetting".

    Attributes
    ----------
    outputs : from the features of the network in training to the first network's logits.
    """

    def __init__(self, source: MatchboxNet) -> None:
        """`source` is the first network; it is not changed."""
        self.source = copy.deepcopy(source).eval().requires_grad_(False)
        self.outputs = copy.deepcopy(source.classifier).requires_grad_(True)

    def loss(self, pooled: Tensor, features: Tensor) -> Tensor:
        """The mean square of what is forgotten, over the variance of the logits of a batch: a scalar."""
        with torch.no_grad():
            logits = self.source(features)
        return (self.outputs(pooled) - logits).square().mean() / logits.var(dim=0).mean().clamp(min=1e-3)


def between(trained: MatchboxNet, first: MatchboxNet, share: float) -> MatchboxNet:
    """A new network, its weights and statistics so far from `trained` towards `first`, its outputs those of `trained`.

    It finds the word as said by people whom training did not have, which the trained weights learn to miss the longer
    they are trained on some voices. Source: M. Wortsman et al. 2022, "Robust fine-tuning of zero-shot models".

    Parameters
    ----------
    first : a network of the same shape, but for the number of its outputs.
    share : 0 to 1.
    """
    found, start = copy.deepcopy(trained), first.state_dict()
    with torch.no_grad():
        for name, value in found.state_dict().items():
            if value.is_floating_point() and not name.startswith("classifier."):
                value.lerp_(start[name], share)
    return found


class WakeRun:
    """One training, from a seed."""

    def __init__(self, settings: WakeSettings, windows: Windows, held_out: HeldOut, start: Path, folder: Path) -> None:
        """Take up `folder`'s run where it stopped, or begin from the model `start`.

        Raises
        ------
        ModelError, SettingError : the start cannot be used.
        """
        self.settings, self.windows, self.held_out, self.folder = settings, windows, held_out, folder
        self.front_end: FrontEnd = windows.front_end
        self.variant = get_variant(VARIANT)
        self.classes = (*settings.labels, UNKNOWN)
        seed_everything(settings.seed)
        self.network, source = _begin(start, self.classes, windows)
        self.judged = copy.deepcopy(self.network)
        self.memory = Memory(source)
        parameters = [*self.network.parameters(), *self.memory.outputs.parameters()]
        self.optimiser = NovoGrad(parameters, lr=settings.peak_lr, betas=BETAS, weight_decay=1e-3)
        self.epoch, self.history = 0, list[dict[str, Any]]()
        if (folder / "last.pt").exists():
            self._resume()

    def run(self, progress: Callable[[int, int], None], report: Callable[[dict[str, Any]], None]) -> Path:
        """Train to the last epoch; the file of the best.

        Raises
        ------
        CollapseError : a word is missed nearly always, or its output says the same of everything.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while self.epoch < self.settings.epochs:
            if self.epoch:
                self.windows.hard = np.union1d(self.windows.hard, self._mine())
            loss = self._train_epoch(progress)
            self.epoch += 1
            line: dict[str, Any] = {"epoch": self.epoch, "loss": loss}
            if self.epoch >= JUDGED_FROM * self.settings.epochs:
                released = between(self.judged, self.memory.source, FIRST_SHARE)
                line |= self.held_out.judge(released).to_dict()
                if line["mean"] <= min((earlier["mean"] for earlier in self._judged_lines()), default=1.0):
                    best = {"model": released.state_dict(), **line}
                    write_checkpoint(self.folder / "best.pt", best)
            self._save(line)
            report(line)
        best = min(reversed(self._judged_lines()), key=lambda line: line["mean"])  # of equal ones the last, as above
        if lost := [label for label, missed in best["of_word"].items() if missed > USELESS]:
            raise CollapseError(f"{', '.join(lost)} was not learnt: missed {best['of_word'][lost[0]]:.0%} of the time")
        return self.folder / "best.pt"

    def _train_epoch(self, progress: Callable[[int, int], None]) -> float:
        s, total = self.settings, 0.0
        self.network.train()
        for step, (features, labels) in enumerate(self.windows.batches(self.epoch, s.steps, s.batch)):
            done = self.epoch * s.steps + step
            lr = warmup_hold_decay(done, s.epochs * s.steps, peak=s.peak_lr, final=s.final_lr, warmup=0.05, hold=0.25)
            for group in self.optimiser.param_groups:
                group["lr"] = lr
            self.optimiser.zero_grad(set_to_none=True)
            pooled = self.network.pooled(features)
            loss = evidential_loss(self.network.classifier(pooled), labels, self.variant)
            if s.memory:
                loss = loss + s.memory * self.memory.loss(pooled, features)
            if not torch.isfinite(loss):
                raise CollapseError(f"the loss became {float(loss)} in epoch {self.epoch + 1}")
            loss.backward()  # type: ignore[no-untyped-call]
            if bound_gradients(self.network, GRADIENT_LIMIT):
                self.optimiser.step()
            follow(self.judged, self.network, s.average, done)
            total += float(loss.detach())
            progress(step + 1, s.steps)
        return total / s.steps

    def _mine(self) -> I64:
        """The windows of training speech that come nearest to a word, so that they are shown again: their ends."""
        logits = stream_logits(self.judged, self.windows.speech)
        p = smoothed(logits, np.ones(len(logits), np.bool_))
        odds = log_odds(p, len(self.settings.labels)).max(axis=1)
        return (peak_places(odds, MINED, SPACING) + 1) * HOP

    def _judged_lines(self) -> list[dict[str, Any]]:
        return [line for line in self.history if "mean" in line]

    def _save(self, line: dict[str, Any]) -> None:
        self.history = [*self.history[: self.epoch - 1], line]
        write_checkpoint(
            self.folder / "last.pt",
            {
                "model": self.judged.state_dict(),
                "trained": self.network.state_dict(),
                "memory": self.memory.outputs.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "epoch": self.epoch,
                "history": self.history,
                "settings": self.settings.to_dict(),
                "hard": torch.from_numpy(self.windows.hard),
            },
        )
        text = "".join(json.dumps(entry) + "\n" for entry in self.history)
        replace_file(self.folder / "history.jsonl", text)

    def _resume(self) -> None:
        last = _read(self.folder / "last.pt")
        if last.get("settings") not in (json.loads(json.dumps(self.settings.to_dict())), self.settings.to_dict()):
            raise SettingError(f"{self.folder} holds a run of other settings; remove it, or give another --work folder")
        try:
            self.judged.load_state_dict(last["model"])
            self.network.load_state_dict(last["trained"])
            self.memory.outputs.load_state_dict(last["memory"])
            self.optimiser.load_state_dict(last["optimiser"])
            self.epoch, self.history = last["epoch"], list(last["history"])
            self.windows.hard = last["hard"].numpy()
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError):
            raise SettingError(
                f"{self.folder}/last.pt is of another network; remove {self.folder} to train it anew"
            ) from None


def load_best(path: Path, classes: int, front_end: FrontEnd) -> tuple[MatchboxNet, dict[str, Any]]:
    """The network of a run's best epoch, with the bias that it was judged by, and that epoch's line of the history."""
    saved = _read(path)
    weights = saved.pop("model")
    network = _new(classes, front_end, channels=len(weights["blocks.0.residual.pointwise"]))
    network.load_state_dict(weights)
    with torch.no_grad():
        network.classifier.bias[:-1] += torch.tensor(saved["bias"])
    return network.eval(), saved


def load_start(path: Path) -> tuple[MatchboxNet, Metadata]:
    """The network that training can begin from, and what its file says of itself.

    Raises
    ------
    ModelError : no file of ours, or one without the float weights.
    SettingError : it is not for streams.
    """
    network, metadata = load_network(path)
    if metadata.padding != "valid" or metadata.front_end != FrontEnd():
        raise SettingError(
            f'{path} is not a model for streams; expected one with padding "valid", such as models/stream.onnx'
        )
    return network, metadata


def _begin(start: Path, classes: tuple[str, ...], windows: Windows) -> tuple[MatchboxNet, MatchboxNet]:
    """The network to train, and the shipped one that it begins as.

    Outputs of its own start from zero, so that the features are not shaken first.
    """
    source, _ = load_start(start)
    features = [x for x, _ in windows.draw(0, 1_000_000, STATISTICS_WINDOWS)]
    measure_statistics(source, torch.from_numpy(np.stack(features)))
    network = _new(len(classes), windows.front_end, source.channels)
    weights = source.state_dict()
    weights["classifier.weight"] = torch.zeros_like(network.classifier.weight)
    weights["classifier.bias"] = torch.zeros_like(network.classifier.bias)
    network.load_state_dict(weights)
    return network, source


def _new(classes: int, front_end: FrontEnd, channels: int) -> MatchboxNet:
    return FastMatchboxNet(classes, 1, front_end.n_mfcc, "valid", channels)


def _read(path: Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch raises a dozen types for files that are not its own
        saved = None
    if not isinstance(saved, dict) or "model" not in saved:
        raise SettingError(f"{path} is missing or damaged; remove {path.parent} to train it anew")
    return saved
