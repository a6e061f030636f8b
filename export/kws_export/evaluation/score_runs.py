"""A run's answers on every set, in one small file: all that a report needs, without training or recordings.

A file NAME.npz holds, for each set, truth and predicted (int16), entropy and vacuity (float32); for validation and test
also the raw logits, from which all else can be computed again; and for the test split what the proper scoring rules
need of p̂, which files have that are older than the logits. The scores are the device's to the last bit: some variants
crowd thousands of clips just below 1, and rounding would merge them. Of logits and probabilities 16 significant bits
are kept, which the file's compression makes the most of.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from kws_edge.arrays import F32, I16
from kws_edge.errors import ModelError, SettingError
from kws_edge.files import read_arrays, replace_file
from kws_edge.model.features import FrontEnd
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.variants import VARIANTS
from kws_edge.text import one_line, shown
from kws_edge.text import shortened as shortened_text
from kws_export.evaluation.answers import ClipAnswers
from kws_export.evaluation.logits import logits_of
from kws_export.evaluation.score_sets import ClipSet
from kws_export.evaluation.scoring import Scored, score_clips
from kws_export.graph.build import build_model, load_model, run_model
from kws_export.training.about import About
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.description import uncalibrated_metadata
from kws_export.training.recipe import Recipe

FORMAT = 2
WITH_LOGITS = ("validation", "test")
_DROPPED_BITS = 24 - 16  # of a float32's 24 significant ones


@dataclass(frozen=True, slots=True)
class KeptAnswers(ClipAnswers):
    """A model's answers on n clips, as a score file keeps them.

    Attributes
    ----------
    truth, predicted : int16 [n], indices of labels; truth is -1 for a clip of none of them.
    entropy, vacuity : float32 [n].
    p_truth, p_predicted, sum_p2 : float32 [n], of p̂: the true class's and the predicted class's probability, and Σ p̂².
        None where they were not kept.
    logits : float32 [n, K], of 16 significant bits; None where they were not kept.
    """

    truth: I16
    predicted: I16
    entropy: F32
    vacuity: F32
    p_truth: F32 | None = None
    p_predicted: F32 | None = None
    sum_p2: F32 | None = None
    logits: F32 | None = None

    @classmethod
    def of(cls, scored: Scored, logits: F32 | None = None, *, with_probabilities: bool = False) -> "KeptAnswers":
        """What is kept of a model's outputs, and of the logits [n, K] behind them where they are given."""
        answers = cls(
            scored.truth.astype(np.int16),
            scored.predicted.astype(np.int16),
            scored.entropy,
            scored.vacuity,
            logits=None if logits is None else shortened(logits),
        )
        if not with_probabilities:
            return answers
        p, row = scored.probability, np.arange(len(scored.truth))
        return replace(
            answers,
            p_truth=shortened(p[row, scored.truth]),
            p_predicted=shortened(p[row, scored.predicted]),
            sum_p2=shortened(np.square(p).sum(axis=1)),
        )


def shortened(values: npt.ArrayLike) -> F32:
    """Round to float32 numbers of 16 significant bits, to nearest; values finite, any shape."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + (1 << (_DROPPED_BITS - 1))) >> _DROPPED_BITS << _DROPPED_BITS).astype(np.uint32).view(np.float32)


@dataclass(frozen=True, slots=True)
class RunScores:
    """The file of one run.

    Attributes
    ----------
    run : the name of the run's folder, or that of its exported file, without .onnx.
    variant, seed, epochs, best_epoch : of the run; the answers are of the weights of `best_epoch`.
    recipe : all its settings, plain JSON types.
    labels : the words.
    checkpoint : SHA-256 of the weights' file, best.pt or the exported one.
    keys : set → `ClipSet.key` of what was scored.
    patterns : option of `kws-export score` → the patterns of recordings that it was given.
    sets : set → answers.
    history : of the training, an entry an epoch as in history.jsonl; empty where it was not kept.
    contents : set → `ClipSet.content` of what was scored; older files have none.
    """

    run: str
    variant: str
    seed: int
    epochs: int
    best_epoch: int
    recipe: dict[str, Any]
    labels: tuple[str, ...]
    checkpoint: str
    keys: dict[str, str]
    patterns: dict[str, list[str]]
    sets: dict[str, KeptAnswers]
    history: list[dict[str, float]] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)

    def is_of(self, clips: ClipSet) -> bool:
        """Whether the set was scored on these very clips, as far as the file can tell."""
        same = self.keys.get(clips.name) == clips.key
        return same and self.contents.get(clips.name) in (None, clips.content)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; the same scores give the same bytes."""
        about = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "sets"}
        arrays = {
            f"{name}/{f.name}": value
            for name, answers in sorted(self.sets.items())
            for f in fields(answers)
            if (value := getattr(answers, f.name)) is not None
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, about=np.array(json.dumps({"format": FORMAT, **about}, sort_keys=True)), **arrays)
        replace_file(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> "RunScores":
        """Read what `save` wrote. Raises SettingError where it is no such file, or one of another format."""
        try:
            arrays = read_arrays(path)
            about = dict(json.loads(str(arrays.pop("about"))))
            if (found := about.pop("format", None)) != FORMAT:
                raise SettingError(f"{path} has format {shown(found)}; expected {FORMAT}: score the run again")
            sets: dict[str, dict[str, Any]] = {}
            for name, array in arrays.items():
                of, _, column = name.partition("/")
                sets.setdefault(of, {})[column] = array
            about["labels"] = tuple(about["labels"])
            about.setdefault("contents", {})
            if about["variant"] not in VARIANTS:
                raise ValueError(f"variant {shown(about['variant'])}")
            if wrong := [name for name, kind in _KINDS.items() if not isinstance(about[name], kind)]:
                raise ValueError(f"{wrong[0]} {shown(about[wrong[0]])}")
            classes = len(about["labels"])
            kept = {name: _checked(KeptAnswers(**columns), classes) for name, columns in sets.items()}
            return cls(**about, sets=kept)
        except SettingError:
            raise
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            said = shortened_text(one_line(error), 200)
            raise SettingError(f"{path} holds no scores: {said}; expected a file of `kws-export score`") from None


_KINDS = {
    "run": str, "seed": int, "epochs": int, "best_epoch": int, "recipe": dict, "keys": dict, "patterns": dict,
    "contents": dict,
}  # fmt: skip


def _checked(answers: KeptAnswers, classes: int) -> KeptAnswers:
    """Answers of a file, which may be damaged. Raises ValueError where they are not those of n clips and K classes."""
    for f in fields(answers):
        value, kind = getattr(answers, f.name), np.int16 if f.name in ("truth", "predicted") else np.float32
        n, dimensions = np.shape(answers.truth)[:1], 2 if f.name == "logits" else 1
        if value is not None and (value.dtype != kind or value.shape[:1] != n or value.ndim != dimensions):
            raise ValueError(f"{f.name} {value.dtype} {list(value.shape)}")
    named = np.concatenate([answers.truth, answers.predicted])
    if not ((named >= -1) & (named < classes)).all():
        raise ValueError(f"classes beyond {classes} labels")
    if answers.logits is not None and answers.logits.shape[1] != classes:
        raise ValueError(f"logits of {answers.logits.shape[1]} classes for {classes} labels")
    return answers


@dataclass(frozen=True, slots=True)
class ScoredRun:
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
    def open(cls, path: Path) -> "ScoredRun":
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
            if not {"recipe", "best_epoch"} <= metadata.training.keys():
                raise SettingError(f"{path} does not say how it was trained; expected a file of kws-export export")
            recipe, history = Recipe.from_dict(metadata.training["recipe"]), []
            best_epoch = metadata.training["best_epoch"]
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
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise SettingError(f"{path}: {error}; expected a line of JSON for each epoch, as train writes") from None


class Common(NamedTuple):
    """What runs must share to be scored on the same clips: labels, front end, and the recipe's list of test clips."""

    labels: tuple[str, ...]
    front_end: FrontEnd
    test_list: str


def common_settings(runs: Sequence[ScoredRun]) -> Common:
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


def missing(runs: Sequence[ScoredRun], sets: Sequence[ClipSet], out: Path) -> list[tuple[ClipSet, list[ScoredRun]]]:
    """What is still to be scored: the sets, each with the runs whose file has it not, or from other clips."""
    have = {run.name: run.scores(out) for run in runs}
    todo = [(s, [run for run in runs if not have[run.name].is_of(s)]) for s in sets]
    return [(s, some) for s, some in todo if some]


def score(
    todo: Sequence[tuple[ClipSet, Sequence[ScoredRun]]], out: Path, patterns: dict[str, list[str]]
) -> Iterator[tuple[ScoredRun, ClipSet]]:
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
