"""From a training run to the files that ship: export, calibrate, measure, write the model, its card and its answers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from kws_edge.errors import ModelError, SettingError
from kws_edge.files import replace_file
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import SCORES, Score
from kws_edge.model.selection import OperatingPoint
from kws_edge.stream.incremental import SUFFIX as STEP_SUFFIX
from kws_edge.tuning.record import FORMS, name_for
from kws_export.data.batches import split_features
from kws_export.data.speech_commands import Split, index, split_rule
from kws_export.data.splits import UNKNOWN, ArrayDataset, load_split
from kws_export.evaluation.scoring import (
    Scored,
    Thresholds,
    calibrate,
    calibrated,
    observe,
    score_clips,
    withheld_shares,
)
from kws_export.evaluation.thresholds import fewest_to_promise
from kws_export.graph.build import build_model, build_step_model, load_model, run_model, save_model
from kws_export.release.card import model_card
from kws_export.release.runtimes import check_runtimes
from kws_export.stored import check_card, check_writable
from kws_export.training.about import About, about_folder
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.description import uncalibrated_metadata
from kws_export.training.recipe import Recipe
from kws_export.training.run_folder import has_run

SPLITS: tuple[Split, ...] = ("train", "validation", "test")

Reporter = Callable[[str], None]
"""Called with a line about each step."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the exported model gives at its thresholds on clips that had no part in choosing them.

    Attributes
    ----------
    observed : score → the operating points on the test split.
    withheld : score → which share of other words each threshold withholds; empty where there are no such clips.
    """

    observed: Thresholds
    withheld: dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class ExportSource:
    """What a release is made from: a run's checkpoint, or an exported file that is to be calibrated and written anew.

    Attributes
    ----------
    path : of the checkpoint or the file.
    checkpoint : its weights and what they were trained by.
    metadata : what an exported file says of itself; None for a run.
    """

    path: Path
    checkpoint: Checkpoint
    metadata: Metadata | None

    @classmethod
    def open(cls, path: Path) -> "ExportSource":
        """Read NAME.onnx, or a checkpoint under any other name. Raises as `Checkpoint.load` and `of_model` do."""
        if path.suffix == ".onnx":
            return cls(path, *Checkpoint.of_model(path))
        return cls(path, Checkpoint.load(path), None)


def package(
    source: ExportSource,
    data_root: Path,
    out: Path,
    *,
    cache: Path,
    score: Score | None = None,
    with_front_end: bool = False,
    negatives: str = "",
    about: About | None = None,
    command: str = "",
    overwrite: bool = False,
    report: Reporter = lambda line: None,
) -> Metadata:
    """Export, compare the runtimes, calibrate on validation, measure on test, write `out`, its card and its answers.

    Parameters
    ----------
    source : what to release; what an exported file says of its training and of streams stays.
    out : the file NAME.onnx, which gives the model its name; the card lies beside it with the suffix .md, and, with
        `with_front_end`, forms of it that take samples instead of MFCC: `NAME.audio.onnx` for clips and, where the
        network has no padding, `NAME.audio.step.onnx` for streams. The answers on each split of a run go to its folder.
    score : by which labels are withheld; None for the exported file's own, or the entropy.
    negatives : what the recordings without words were, for the card.
    about : what all the recordings were, also those that a start learnt from; None for what the recipe says, or else
        about.toml in `data_root`.
    overwrite : also where `out` is a file of another recipe.
    report : called with a line about each step.

    Raises
    ------
    ModelError : torch, ONNX Runtime and numpy disagree on real clips.
    SettingError, AudioError : the data cannot be used, or `out` is no .onnx file, or another model.
    """
    if out.suffix != ".onnx":
        raise SettingError(f"cannot write {out}; expected a name that ends in .onnx")
    checkpoint, metadata = source.checkpoint, source.metadata
    name = name_for(out)
    check_writable(out)
    check_card(out, overwrite=overwrite)
    for target in (out, *(out.with_suffix(form) for form in FORMS)):
        if target.exists() and not overwrite:
            _refuse_another(target, checkpoint)
    data = load_splits(checkpoint, data_root, cache)
    if metadata is None:
        extra = {"clips": {split: len(clips) for split, clips in data.items()}, "negatives": negatives}
        known = about or checkpoint.recipe.about.or_else(about_folder(data_root))
        metadata = uncalibrated_metadata(checkpoint, score or "entropy", extra, known)
    elif negatives:
        metadata = replace(metadata, training={**metadata.training, "negatives": negatives})
    if about:
        training = {**metadata.training, "data": about.stated.data}
        metadata = replace(
            metadata, training=training, licence=about.stated.licence, attribution=about.stated.attribution
        )
    draft = replace(metadata, name=name, score=score or metadata.score)
    model = run_model(build_model(checkpoint.network, draft))

    scored = score_splits(checkpoint, model, data, report)
    others = score_other_words(model, checkpoint, data_root, cache)
    thresholds = calibrate(scored["validation"])
    metadata = calibrated(draft, thresholds, scored)
    measured = Measured(observe(thresholds, scored["test"]), withheld_shares(thresholds, others) if others else {})

    size = build_model(checkpoint.network, metadata).ByteSize()
    card = model_card(
        metadata, size, scored["test"], measured.observed, measured.withheld, command, splits=split_rule(data_root)
    )
    replace_file(out.with_suffix(".md"), card)
    written = write_models(checkpoint, metadata, out, with_front_end=with_front_end)
    if source.metadata is None and has_run(source.path.parent):
        for name, answers in {**scored, **({"other-words": others} if others else {})}.items():
            written.append(source.path.parent / f"scores-{name}.npz")
            answers.save(written[-1])
    _report_promised(metadata, report)
    _report_measured(scored, measured, report)
    report(f"wrote {', '.join(map(str, written))} and {out.with_suffix('.md')}")
    return metadata


def load_splits(checkpoint: Checkpoint, data_root: Path, cache: Path) -> dict[Split, ArrayDataset]:
    """The data set's splits, of the words that a checkpoint knows."""
    test_list = checkpoint.recipe.test_list
    return {split: load_split(data_root, split, checkpoint.labels, cache, test_list=test_list) for split in SPLITS}


def score_splits(
    checkpoint: Checkpoint, model: KeywordModel, data: dict[Split, ArrayDataset], report: Reporter
) -> dict[str, Scored]:
    """The exported model's answers on validation and test, once the three runtimes are known to agree on them.

    Raises
    ------
    ModelError : they do not.
    """
    features = {split: split_features(clips, checkpoint.front_end) for split, clips in data.items() if split != "train"}
    some = features["validation"][:: max(1, len(features["validation"]) // 200)]
    gaps = check_runtimes(checkpoint, model, some)
    report(
        "largest difference of torch, ONNX Runtime and numpy: "
        + ", ".join(f"{output} {gap:.1e}" for output, gap in gaps.items())
    )
    return {split: score_clips(model, x.numpy(), np.asarray(data[split].labels)) for split, x in features.items()}


def score_other_words(model: KeywordModel, checkpoint: Checkpoint, data_root: Path, cache: Path) -> Scored | None:
    """The model's answers on every clip of the data set's words that it has no class for; None where it has."""
    clips = [clip for clip in index(data_root) if clip.word not in checkpoint.labels]
    if not clips or UNKNOWN in checkpoint.labels:
        return None
    words: dict[Split, set[str]] = {}
    for clip in clips:
        words.setdefault(clip.split, set()).add(clip.word)  # some are in one split alone
    data = [load_split(data_root, split, sorted(said), cache) for split, said in sorted(words.items())]
    features = np.concatenate([split_features(d, checkpoint.front_end).numpy() for d in data])
    return score_clips(model, features, np.full(len(features), -1))


def write_models(checkpoint: Checkpoint, metadata: Metadata, out: Path, *, with_front_end: bool) -> list[Path]:
    """Write the model's file, and beside it the forms of it that streams and other runtimes take; these files.

    Forms with the front end that an earlier export left are written anew, and those that this network has not are
    removed: of another model, they would answer differently. The file comes last, as it says that the others are there.
    """
    models: dict[Path, onnx.ModelProto] = {}
    of_audio = out.with_suffix(".audio.onnx")
    for front_end in (False, True) if with_front_end or of_audio.exists() else (False,):
        file = of_audio if front_end else out
        models[file] = build_model(checkpoint.network, metadata, with_front_end=front_end)
        if metadata.padding == "valid":
            step = build_step_model(checkpoint.network, metadata, with_front_end=front_end)
            models[file.with_suffix(STEP_SUFFIX)] = step
    for form in FORMS:
        if out.with_suffix(form) not in models:
            out.with_suffix(form).unlink(missing_ok=True)
    for file in reversed(models):
        save_model(models[file], file)
    return list(models)


def _refuse_another(out: Path, checkpoint: Checkpoint) -> None:
    """Raise SettingError unless `out` is an earlier file of the same recipe, such as one to be rebuilt."""
    try:
        _, metadata = load_model(out)
        differences = Recipe.from_dict(metadata.training["recipe"]).differences(checkpoint.recipe)
        differences += ["words"] if metadata.labels != checkpoint.labels else []
        what = f"of another recipe, which differs in {', '.join(differences)}" if differences else ""
    except (ModelError, SettingError, KeyError):
        what = "something else"
    if what:
        raise SettingError(f"{out} exists and is {what}; expected another --out, or --force to write over it")


def _report_promised(metadata: Metadata, report: Reporter) -> None:
    for score, points in metadata.thresholds.items():
        for p in points:
            shown = (
                "shown" if p.is_shown else f"not shown: it takes {fewest_to_promise(p.target):,} accepted clips or more"
            )
            seen = "nothing is accepted" if p.low is None else f"{_with_interval(p)} on {p.accepted} accepted clips"
            report(f"validation at {score} {p.target}: {seen}, {shown}")


def _with_interval(p: OperatingPoint) -> str:
    return f"accuracy {p.accepted_accuracy:.4f} ({p.low:.4f} to {p.high:.4f})"


def _report_measured(scored: dict[str, Scored], measured: Measured, report: Reporter) -> None:
    for name, answers in scored.items():
        report(f"{name} accuracy {answers.accuracy()['accuracy']:.4f} on {len(answers.truth)} clips")
    for score in SCORES:
        for i, point in enumerate(measured.observed[score]):
            accepted = "nothing is accepted" if point.low is None else _with_interval(point)
            line = f"test at {score} {point.target}: {accepted}, coverage {point.coverage:.4f}"
            withheld = f", other words withheld {measured.withheld[score][i]:.4f}" if measured.withheld else ""
            report(line + withheld)
