"""All steps from a text to a model, in a work folder from which a stopped command continues."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kws_edge.arrays import I16
from kws_edge.errors import ModelError, SettingError
from kws_edge.files import replace_file
from kws_edge.text import counted, shortened
from kws_edge.tuning.record import name_for
from kws_export.data.pack import Pack
from kws_export.stored import check_writable
from kws_export.training.lock import held
from kws_export.voices import Engine, get_engines
from kws_export.wake.held_out import HeldOut
from kws_export.wake.material import Material, Saying, hours, load_recordings, load_takes, part
from kws_export.wake.provenance import attribution, provenance
from kws_export.wake.release import Calibrated, release
from kws_export.wake.sayings import near_takes, similar_phrases, spoken_near_misses, spoken_words, word_takes
from kws_export.wake.settings import WakeSettings
from kws_export.wake.training import UNKNOWN, CollapseError, WakeRun, load_best, load_start
from kws_export.wake.windows import Windows

_log = logging.getLogger(__name__)

TRIES = 3
"""Runs, each with another seed and half the learning rate, before the command gives up."""


class Progress(Protocol):
    """How far the work is."""

    def start(self, title: str, total: int | None) -> None:
        """A new part of the work."""

    def step(self) -> None:
        """One more of `total`."""

    def say(self, line: str) -> None:
        """Something to keep."""


class WakeProject:
    """One model in the making."""

    def __init__(
        self,
        settings: WakeSettings,
        folder: Path,
        *,
        start: Path,
        negatives: Pack,
        recordings: Path | None = None,
        recordings_note: str = "",
        command: str = "",
    ) -> None:
        """Check what can be checked before any work.

        Raises
        ------
        SettingError : neither voices nor recordings, whom to name is more than a model's file takes, a start that is
            not for streams, or a folder with a project of other settings.
        ModelError : a start that cannot be read.
        DependencyError : a voice that was asked for is not installed.
        """
        self.settings, self.folder, self.start = settings, folder, start
        self.negatives = negatives.without([said for word in settings.words for said in (word.text, *word.said)])
        _warn_of_untold(self.negatives)
        self.note, self.command = recordings_note, command
        by_phonemes = any(word.phonemes for word in settings.words)
        self.engines: list[Engine] = get_engines(settings.voices, language=settings.language, phonemes=by_phonemes)
        self.recorded = load_recordings(recordings, settings.labels) if recordings else []
        if lacking := [w for w in settings.labels if not self.engines and w not in {s.label for s in self.recorded}]:
            raise SettingError(
                f"no recording of {', '.join(lacking)}; expected --voices, or --recordings with takes of it"
            )
        self.first = load_start(start)[1]
        named = attribution([engine.credit for engine in self.engines], self.negatives.sources, recordings_note)
        try:
            replace(self.first, attribution=f"{named} {self.first.attribution}")
        except ModelError as error:
            raise SettingError(f"whom the negatives and --recordings-note name: {error}") from None
        self.front_end = self.first.front_end
        self._given = {
            "recordings": _digest((str(settings.labels.index(s.label)), s.speaker, s.samples) for s in self.recorded),
            "negatives": _digest((p.source.kind, p.source.name, p.speaker, p.samples) for p in self.negatives.pieces),
            "start": hashlib.sha256(self.start.read_bytes()).hexdigest(),
        }
        with held(self.folder):
            self._claim()

    def make(self, out: Path, progress: Progress) -> Calibrated:
        """Speak, train, calibrate and write `out` with its card, step graph and plot.

        Raises
        ------
        SettingError : the word cannot be told from speech: no run learnt it, or no threshold holds the limit; or
            another process works in the folder; or nothing can be written to `out`, which is known at once.
        """
        name_for(out)
        check_writable(out)
        with held(self.folder):
            self._claim()
            return self._make(out, progress)

    def _make(self, out: Path, progress: Progress) -> Calibrated:
        training, held_out = self._material(progress)
        self._keep_to(training, held_out, progress)
        progress.say(
            f"{len(training.words)} takes of the word, {len(training.near)} near-misses, "
            f"{hours(training.speech):.1f} h of speech; held out: {len(held_out.words)}, "
            f"{len(held_out.near)}, {hours(held_out.speech):.1f} h"
        )
        progress.start("held-out streams", None)
        judge = HeldOut(held_out, self.settings.labels, self.first, self.settings.limit, self.settings.seed)
        best, tried = self._train(training, judge, progress)
        network, line = load_best(best, len(self.settings.labels) + 1, self.front_end)
        made_from = provenance(
            self.settings, self.engines, training, held_out, self.negatives.sources,
            start=str(self.start), first=self.first, command=self.command, recordings=self.note,
        )  # fmt: skip
        progress.start("calibration", None)
        windows = Windows(held_out, self.settings.labels, self.front_end, self.settings.seed)
        return release(network, line, tried, held_out, windows, made_from, out, progress.say)

    def _train(self, training: Material, judge: HeldOut, progress: Progress) -> tuple[Path, WakeSettings]:
        settings = self.settings
        for attempt in range(1, TRIES + 1):
            windows = Windows(training, settings.labels, self.front_end, settings.seed)
            run = WakeRun(settings, windows, judge, self.start, self.folder / f"run-{attempt}")

            def report(line: dict[str, Any]) -> None:
                missed = ", ".join(f"{share:.0%} {name}" for name, share in line.get("missed", {}).items())
                progress.say(
                    f"epoch {line['epoch']:2d}: loss {line['loss']:.3f}" + (f"; missed {missed}" if missed else "")
                )

            progress.start("training", settings.epochs * settings.steps - run.epoch * settings.steps)
            try:
                return run.run(lambda step, steps: progress.step(), report), settings
            except CollapseError as error:
                progress.say(f"try {attempt} of {TRIES}: {error}")
                settings = replace(settings, seed=settings.seed + 1000, peak_lr=settings.peak_lr / 2)
        raise SettingError(
            f"{' and '.join(self.settings.labels)} could not be learnt in {TRIES} tries; listen to the takes in "
            f"{self.folder / 'said'}: do they say it? If they do, give more of them"
        )

    def _material(self, progress: Progress) -> tuple[Material, Material]:
        s = self.settings
        spoken: list[Saying] = []
        phrases = similar_phrases(s) if self.engines and s.near_misses else []  # first: what it lacks is told at once
        if self.engines:
            progress.start("speaking the word", word_takes(s, self.engines))
            for label, path in spoken_words(s, self.engines, self.folder / "said", progress.step):
                spoken += load_takes(label, [path])
        near: list[Saying] = []
        if phrases:
            progress.start("speaking near-misses", near_takes(len(phrases), self.engines))
            paths = list(spoken_near_misses(phrases, s, self.engines, self.folder / "near-misses", progress.step))
            near = load_takes(UNKNOWN, paths)
        return part([*self.recorded, *spoken], near, self.negatives, s.seed)

    def _keep_to(self, training: Material, held_out: Material, progress: Progress) -> None:
        """Remove what was trained on other takes, as by fewer voices than are installed now."""
        file, both = self.folder / "takes.sha256", (training, held_out)
        words = ((s.label, s.speaker, s.samples) for m in both for s in m.words)
        mine = _digest([*words, *(("", "", samples) for m in both for samples in m.near)])
        if file.is_file() and file.read_text(encoding="utf-8") != mine:
            for run in self.folder.glob("run-*"):
                progress.say(f"other takes than those of {run}: training anew")
                shutil.rmtree(run)
        replace_file(file, mine)

    def _claim(self) -> None:
        """Keep the settings beside the work, and refuse another project's folder."""
        file = self.folder / "wake.json"
        mine = json.loads(json.dumps({**self.settings.to_dict(), **self._given}))
        if file.is_file() and (theirs := _settings(file)) != mine:
            changed = sorted(key for key in mine if mine[key] != theirs.get(key))
            takes = {"words", "language", "voices", "takes", "near_misses", "seed"} & set(changed)
            if takes:
                raise SettingError(
                    f"{self.folder} holds the work for other settings ({', '.join(changed)}); give another --work "
                    "folder, or remove it"
                )
            for run in self.folder.glob("run-*"):  # what was spoken stays good; what was trained does not
                shutil.rmtree(run)
        replace_file(file, json.dumps(mine, ensure_ascii=False, indent=1))


def _warn_of_untold(negatives: Pack) -> None:
    """Warn of speech without texts, in which the word may be said: then it is learnt as what is not the word."""
    untold = [piece for piece in negatives.pieces if piece.source.kind != "sounds" and not piece.text]
    if untold:
        names = ", ".join(dict.fromkeys(piece.source.name for piece in untold))
        _log.warning(
            "no text is known of %s of the negatives (%.1f h of %s), so none is left out where the word is said: make "
            "sure that it is not, or say what is in a transcripts.tsv beside them (kws-export pack --help)",
            counted(len(untold), "recording"), hours([piece.samples for piece in untold]), shortened(names, 200),
        )  # fmt: skip


def _digest(recordings: Iterable[tuple[str | I16, ...]]) -> str:
    """SHA-256 of what recordings are and of their samples, in their order."""
    digest = hashlib.sha256()
    for values in recordings:
        for value in values:
            content = os.fsencode(value) if isinstance(value, str) else np.ascontiguousarray(value, "<i2").tobytes()
            digest.update(f"{len(content)} ".encode())  # so that no two lists of values run into the same bytes
            digest.update(content)
    return digest.hexdigest()


def _settings(file: Path) -> dict[str, Any]:
    """What a folder was made with."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{file}: {error}; remove it where the takes beside it are of this word") from None
    if not isinstance(values, dict):
        raise SettingError(f"{file} holds no settings; remove it where the takes beside it are of this word")
    return values
