"""A run's answers on every set, in one small file: all that a report needs, without training or recordings.

A file NAME.npz holds, for each set, truth and predicted (int16), entropy and vacuity (float32); for validation and test
also the raw logits, from which all else can be computed again; and for the test split what the proper scoring rules
need of p̂, which files have that are older than the logits. The scores are the device's to the last bit: some variants
crowd thousands of clips just below 1, and rounding would merge them. Of logits and probabilities 16 significant bits
are kept, which the file's compression makes the most of.
"""

import io
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, I16
from kws_edge.errors import SettingError
from kws_edge.files import read_arrays, replace_file
from kws_edge.model.variants import VARIANTS
from kws_edge.text import one_line, shown
from kws_edge.text import shortened as shortened_text
from kws_export.evaluation.answers import ClipAnswers
from kws_export.evaluation.score_sets import ClipSet
from kws_export.evaluation.scoring import Scored

FORMAT = 2
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
