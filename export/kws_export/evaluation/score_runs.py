"""Score runs, or the files exported from them, on sets of clips: what one lacks, in one file each (score_file.py)."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import onnx

from kws_edge.errors import ModelError, SettingError
from kws_edge.files import read_text
from kws_edge.model.features import FrontEnd
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_export.evaluation.logits import logits_of
from kws_export.evaluation.score_file import KeptAnswers, RunScores
from kws_export.evaluation.score_sets import ClipSet
from kws_export.evaluation.scoring import score_clips
from kws_export.graph.build import build_model, load_model, run_model
from kws_export.training.about import About
from kws_export.training.checkpoint import Checkpoint, trained_as
from kws_export.training.description import uncalibrated_metadata
from kws_export.training.recipe import Recipe

WITH_LOGITS = ("validation", "test")
"""Sets of which the logits are kept."""


@dataclass(frozen=True, slots=True)
class RunToScore:
    """A run's folder, or the file that was exported from it, opened for scoring.

    Attributes
    ----------
    path : the folder or file.
    graph : what the device runs.
    metadata : what it says of itself.
    recipe, best_epoch : by which it was trained, and the epoch that the weights are of.
    digest : SHA-256 of the weights' file.
    history : of the training, an entry an epoch; empty for an exported file.
    """

    path: Path
    graph: onnx.ModelProto
    metadata: Metadata
    recipe: Recipe
    best_epoch: int
    digest: str
    history: list[dict[str, float]]

    @classmethod
    def open(cls, path: Path) -> "RunToScore":
        """Read a folder's best weights, or an exported file.

        Raises
        ------
        SettingError : a folder without weights, or a file that does not say by which recipe it was trained.
        ModelError : no file of `kws-export export`, or one of the forms that are for other runtimes.
        """
        weights = path / "best.pt" if path.is_dir() else path
        if path.is_dir():
            checkpoint = Checkpoint.load(weights)
            recipe, best_epoch, history = checkpoint.recipe, checkpoint.epoch, _history(path)
            metadata = uncalibrated_metadata(checkpoint, "entropy", {}, About())
            graph = build_model(checkpoint.network, metadata)
        else:
            graph, metadata = load_model(path)
            if found := [i.name for i in graph.graph.input if i.name != "mfcc"]:
                raise ModelError(f"{path} takes {', '.join(found)}; expected the file that takes windows, mfcc alone")
            (recipe, best_epoch), history = trained_as(path, metadata), []
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        return cls(path, graph, metadata, recipe, best_epoch, digest, history)

    @property
    def name(self) -> str:
        """What its score file is called."""
        return self.path.resolve().name if self.path.is_dir() else self.path.stem

    @property
    def is_finished(self) -> bool:
        """Whether it has all the epochs of its recipe; what was exported counts as finished."""
        return self.path.is_file() or len(self.history) >= self.recipe.epochs

    def scores(self, out: Path) -> RunScores:
        """What `out` holds of these very weights; a file of others, or of another format, counts for nothing."""
        with suppress(SettingError):
            saved = RunScores.load(out / f"{self.name}.npz")
            if saved.checkpoint == self.digest:
                return saved
        recipe = json.loads(json.dumps(self.recipe.to_dict()))
        return RunScores(
            self.name, self.recipe.variant, self.recipe.seed, self.recipe.epochs, self.best_epoch, recipe,
            self.metadata.labels, self.digest, keys={}, patterns={}, sets={}, history=self.history,
        )  # fmt: skip


def _history(folder: Path) -> list[dict[str, float]]:
    path = folder / "history.jsonl"
    try:
        lines = read_text(path).splitlines() if path.is_file() else []
        return [json.loads(line) for line in lines]
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{path}: {error}; expected a line of JSON for each epoch, as train writes") from None


class Common(NamedTuple):
    """What runs must share to be scored on the same clips: labels, front end, and the recipe's list of test clips."""

    labels: tuple[str, ...]
    front_end: FrontEnd
    test_list: str


def common_settings(runs: Sequence[RunToScore]) -> Common:
    """What all the runs share. Raises SettingError where they do not, or two share a name."""
    first = runs[0]
    for run in runs[1:]:
        if (run.metadata.labels, run.metadata.front_end) != (first.metadata.labels, first.metadata.front_end):
            raise SettingError(f"{run.path} and {first.path} differ in their words or front end; score them separately")
        if run.recipe.test_list != first.recipe.test_list:
            lists = " and ".join(repr(r.recipe.test_list) if r.recipe.test_list else "none" for r in (run, first))
            raise SettingError(f"{run.path} and {first.path} differ in test_list ({lists}); score them separately")
    names = [run.name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingError(f"two runs are called {', '.join(twice)}; expected folders of different names")
    return Common(first.metadata.labels, first.metadata.front_end, first.recipe.test_list)


def missing(runs: Sequence[RunToScore], sets: Sequence[ClipSet], out: Path) -> list[tuple[ClipSet, list[RunToScore]]]:
    """What is still to be scored: the sets, each with the runs whose file has it not, or from other clips."""
    have = {run.name: run.scores(out) for run in runs}
    todo = [(s, [run for run in runs if not have[run.name].is_of(s)]) for s in sets]
    return [(s, some) for s, some in todo if some]


def score(
    todo: Sequence[tuple[ClipSet, Sequence[RunToScore]]], out: Path, patterns: dict[str, list[str]]
) -> Iterator[tuple[RunToScore, ClipSet]]:
    """Score them, set by set, so that features are computed once; each file is brought up to date at once.

    Parameters
    ----------
    todo : as `missing` gives it.
    patterns : kept in the files, see `RunScores`.

    Yields
    ------
    Each run and set, when it is done.
    """
    models: dict[str, KeywordModel] = {}
    for clips, runs in todo:
        features, truth = clips.load()
        for run in runs:
            if run.name not in models:
                models[run.name] = run_model(run.graph)
            scored = score_clips(models[run.name], features, truth)
            logits = logits_of(run.graph, features) if clips.name in WITH_LOGITS else None
            before = run.scores(out)
            replace(
                before,
                keys={**before.keys, clips.name: clips.key},
                contents={**before.contents, clips.name: clips.content},
                patterns={**before.patterns, **patterns},
                sets={
                    **before.sets,
                    clips.name: KeptAnswers.of(scored, logits, with_probabilities=clips.name == "test"),
                },
            ).save(out / f"{run.name}.npz")
            yield run, clips
