"""Train the whole network from the shipped one, judge every epoch on held-out streams, keep the best.

The folder holds `last.pt` (everything to go on exactly), `best.pt` and `history.jsonl`, as that of `kws-export train`.
"""

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kws_edge.audio.pcm import as_float
from kws_edge.errors import KwsEdgeError, SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.model.variants import get_variant
from kws_export.graph.read import load_network, measure_statistics
from kws_export.network.fast import FastMatchboxNet
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.averaging import follow
from kws_export.training.losses import evidential_loss
from kws_export.training.novograd import NovoGrad
from kws_export.training.schedule import warmup_hold_decay
from kws_export.training.trainer import BETAS, GRADIENT_LIMIT, bound_gradients, seed_everything
from kws_export.wake.held_out import HOP, HeldOut, log_odds, stream_features
from kws_export.wake.settings import WakeSettings
from kws_export.wake.windows import Hard, Windows

VARIANT = "softmax"
UNKNOWN, SILENCE = "_unknown_", "_silence_"
MINE_AT = (0.3, 0.6)
"""When, in parts of the run, the network goes over the training speech to find where it fires."""
JUDGED_FROM = 0.5
"""From which part of the run on an epoch may be the best: earlier ones never were."""
MINED = 400
"""Windows that are kept of that."""
USELESS = 0.98
"""A word that is missed this often at the limit was not learnt."""

_log = logging.getLogger(__name__)


class CollapseError(KwsEdgeError):
    """The run ended without having learnt a word."""


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
        self.classes = (*settings.labels, UNKNOWN, SILENCE)
        seed_everything(settings.seed)
        self.network = _begin(start, self.classes, windows)
        self.judged = copy.deepcopy(self.network)
        self.optimiser = NovoGrad(self.network.parameters(), lr=settings.peak_lr, betas=BETAS, weight_decay=1e-3)
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
            if self.epoch in {round(part * self.settings.epochs) for part in MINE_AT}:
                self.windows.hard = self._mine()
            loss = self._train_epoch(progress)
            self.epoch += 1
            line: dict[str, Any] = {"epoch": self.epoch, "loss": loss}
            if self.epoch >= JUDGED_FROM * self.settings.epochs:
                line |= self.held_out.judge(self.judged).to_dict()
            self._save(line)
            report(line)
        best = min(self._judged_lines(), key=lambda line: line["mean"])
        if lost := [label for label, missed in best["of_word"].items() if missed > USELESS]:
            raise CollapseError(f"{', '.join(lost)} was not learnt: missed {best['of_word'][lost[0]]:.0%} of the time")
        return self.folder / "best.pt"

    def _train_epoch(self, progress: Callable[[int, int], None]) -> float:
        s, total = self.settings, 0.0
        self.network.train()
        for step in range(s.steps):
            done = self.epoch * s.steps + step
            lr = warmup_hold_decay(done, s.epochs * s.steps, peak=s.peak_lr, final=s.final_lr, warmup=0.05, hold=0.25)
            for group in self.optimiser.param_groups:
                group["lr"] = lr
            features, labels = self.windows.batch(self.epoch, step, s.batch)
            self.optimiser.zero_grad(set_to_none=True)
            loss = evidential_loss(self.network(features), labels, self.variant)
            if not torch.isfinite(loss):
                raise CollapseError(f"the loss became {float(loss)} in epoch {self.epoch + 1}")
            loss.backward()  # type: ignore[no-untyped-call]
            if bound_gradients(self.network, GRADIENT_LIMIT):
                self.optimiser.step()
            follow(self.judged, self.network, s.average, done)
            total += float(loss.detach())
            progress(step + 1, s.steps)
        return total / s.steps

    def _mine(self) -> list[Hard]:
        """The windows of training speech that come nearest to a word, so that they are shown again."""
        found: list[tuple[float, Hard]] = []
        window = self.windows.n
        for recording in self.windows.material.speech:
            if len(recording) < window:
                continue
            odds = log_odds(
                self.judged, stream_features([as_float(recording)], self.front_end), len(self.settings.labels)
            )
            best = odds.max(axis=1)
            at = int(best.argmax())
            found.append((float(best[at]), Hard(recording, (at + 1) * HOP * self.front_end.hop)))
        found.sort(key=lambda pair: -pair[0])
        return [hard for _, hard in found[:MINED]]

    def _judged_lines(self) -> list[dict[str, Any]]:
        return [line for line in self.history if "mean" in line]

    def _save(self, line: dict[str, Any]) -> None:
        self.history = [*self.history[: self.epoch - 1], line]
        if "mean" in line and line["mean"] <= min(entry["mean"] for entry in self._judged_lines()):
            _write(self.folder / "best.pt", {"model": self.judged.state_dict(), "epoch": self.epoch, **line})
        _write(
            self.folder / "last.pt",
            {
                "model": self.judged.state_dict(),
                "trained": self.network.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "epoch": self.epoch,
                "history": self.history,
                "settings": self.settings.to_dict(),
                "hard": [(i, hard.end) for i, hard in self._hard_places()],
            },
        )
        text = "".join(json.dumps(entry) + "\n" for entry in self.history)
        (self.folder / "history.jsonl").write_text(text, encoding="utf-8")

    def _hard_places(self) -> list[tuple[int, Hard]]:
        places = {id(recording): i for i, recording in enumerate(self.windows.material.speech)}
        return [(places[id(hard.samples)], hard) for hard in self.windows.hard]

    def _resume(self) -> None:
        last = torch.load(self.folder / "last.pt", map_location="cpu", weights_only=True)
        if (
            last["settings"] != json.loads(json.dumps(self.settings.to_dict()))
            and last["settings"] != self.settings.to_dict()
        ):
            raise SettingError(f"{self.folder} holds a run of other settings; remove it, or give another --work folder")
        self.judged.load_state_dict(last["model"])
        self.network.load_state_dict(last["trained"])
        self.optimiser.load_state_dict(last["optimiser"])
        self.epoch, self.history = last["epoch"], list(last["history"])
        speech = self.windows.material.speech
        self.windows.hard = [Hard(speech[i], end) for i, end in last["hard"]]


def load_best(path: Path, classes: int, front_end: FrontEnd) -> tuple[MatchboxNet, dict[str, Any]]:
    """The network of a run's best epoch, and that epoch's line of the history."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    network = _new(classes, front_end)
    network.load_state_dict(saved.pop("model"))
    return network.eval(), saved


def _begin(start: Path, classes: tuple[str, ...], windows: Windows) -> MatchboxNet:
    """The shipped network with outputs of its own: they start from zero, so that its features are not shaken first."""
    source, metadata = load_network(start)
    if metadata.padding != "valid" or metadata.front_end != windows.front_end:
        raise SettingError(
            f'{start} is no model for streams; expected one with padding "valid", such as models/stream.onnx'
        )
    features = torch.cat([windows.batch(0, 10_000 + i, 128)[0] for i in range(4)])
    measure_statistics(source, features)
    network = _new(len(classes), windows.front_end)
    weights = source.state_dict()
    weights["classifier.weight"] = torch.zeros_like(network.classifier.weight)
    weights["classifier.bias"] = torch.zeros_like(network.classifier.bias)
    network.load_state_dict(weights)
    return network


def _new(classes: int, front_end: FrontEnd) -> MatchboxNet:
    return FastMatchboxNet(classes, 1, front_end.n_mfcc, "valid")


def _write(path: Path, values: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    torch.save(values, partial)
    partial.replace(path)
