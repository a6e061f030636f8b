"""From a training run to the files that ship: calibrated ONNX, model card, scores for reports."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kws_edge.errors import ModelError, SettingError
from kws_edge.model import evidence
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import SCORES, Metadata, Score
from kws_edge.model.variants import get_variant
from kws_edge.stream.incremental import SUFFIX as STEP_SUFFIX
from kws_export.data.batches import split_features
from kws_export.data.speech_commands import Split, index
from kws_export.data.splits import UNKNOWN, load_split
from kws_export.evaluation.scoring import Scored, Thresholds, calibrate, observe, score_clips, withheld_shares
from kws_export.graph.build import build_model, build_step_model, load_model, run_model, save_model
from kws_export.network.head import evidential_head
from kws_export.network.matchboxnet import parameter_count
from kws_export.release.card import model_card
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.recipe import Recipe

LICENCE = "Apache-2.0"
ATTRIBUTION = (
    'Trained on a part of "Speech Commands" by Pete Warden (arXiv:1804.03209), CC BY 4.0, '
    "https://creativecommons.org/licenses/by/4.0/."
)
PARITY = 1e-4
"""How far torch, ONNX Runtime and numpy may be apart, relative to values above 1."""


def uncalibrated_metadata(checkpoint: Checkpoint, score: Score, extra: dict[str, Any]) -> Metadata:
    """The description of a model before it was run on anything; `extra` goes into `training`."""
    r = checkpoint.recipe
    training = {
        "data": "Speech Commands (P. Warden), part of v0.01 and v0.02",
        "recipe": r.to_dict(),
        "epochs": r.epochs,
        "best_epoch": checkpoint.epoch,
        "seed": r.seed,
        "repeat": r.repeat,
        "parameters": parameter_count(checkpoint.network),
        **extra,
    }
    return Metadata(
        name=r.name, labels=checkpoint.labels, variant=r.variant, front_end=checkpoint.front_end, score=score,
        thresholds={}, calibration={}, training=training, accuracy={}, licence=LICENCE, attribution=ATTRIBUTION,
        padding=r.padding,
    )  # fmt: skip


def package(
    checkpoint_file: Path,
    data_root: Path,
    out: Path,
    *,
    cache: Path,
    score: Score = "entropy",
    with_front_end: bool = False,
    negatives: str = "",
    command: str = "",
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Metadata:
    """Export, check parity, calibrate on validation, measure on test, write `out`, its card and its scores.

    Parameters
    ----------
    out : the file NAME.onnx, which gives the model its name; the card lies beside it with the suffix .md, and, with
        `with_front_end`, a second file `NAME.audio.onnx` that takes samples instead of MFCC. Scores go to the run's
        folder.
    negatives : what the recordings without words were, for the card.
    overwrite : also where `out` is a file of another recipe.
    report : called with a line about each step.

    Raises
    ------
    ModelError : torch, ONNX Runtime and numpy disagree by more than PARITY on real clips.
    SettingError, AudioError : the checkpoint or the data cannot be used, or `out` is no .onnx file, or another model.
    """
    if out.suffix != ".onnx":
        raise SettingError(f"cannot write {out}; expected a name that ends in .onnx")
    checkpoint = Checkpoint.load(checkpoint_file)
    if out.exists() and not overwrite:
        _refuse_another(out, checkpoint)
    splits: tuple[Split, ...] = ("train", "validation", "test")
    test_list = checkpoint.recipe.test_list
    data = {split: load_split(data_root, split, checkpoint.labels, cache, test_list=test_list) for split in splits}
    extra = {"clips": {split: len(d) for split, d in data.items()}, "negatives": negatives}
    metadata = replace(uncalibrated_metadata(checkpoint, score, extra), name=out.stem)
    scored: dict[str, Scored] = {}
    model = run_model(build_model(checkpoint.network, metadata))
    for split in splits[1:]:
        features = split_features(data[split], checkpoint.front_end)
        if split == "validation":
            gaps = parity(checkpoint, model, features[:: max(1, len(features) // 200)])
            report("largest difference of torch, ONNX Runtime and numpy: " + ", ".join(gaps))
        scored[split] = score_clips(model, features.numpy(), np.asarray(data[split].labels))
        scored[split].save(checkpoint_file.parent / f"scores-{split}.npz")
    others = _score_other_words(model, checkpoint, data_root, cache)
    if others:
        others.save(checkpoint_file.parent / "scores-other-words.npz")
    thresholds = calibrate(scored["validation"])
    metadata = calibrated(metadata, thresholds, scored)
    save_model(build_model(checkpoint.network, metadata), out)
    if metadata.padding == "valid":
        save_model(build_step_model(checkpoint.network, metadata), out.with_suffix(STEP_SUFFIX))
    if with_front_end:
        save_model(build_model(checkpoint.network, metadata, with_front_end=True), out.with_suffix(".audio.onnx"))
    observed = observe(thresholds, scored["test"])
    withheld = withheld_shares(thresholds, others) if others else {}
    card = model_card(metadata, out.stat().st_size, scored["test"], observed, withheld, command)
    out.with_suffix(".md").write_text(card, encoding="utf-8")
    for name, s in scored.items():
        report(f"{name} accuracy {s.accuracy()['accuracy']:.4f} on {len(s.truth)} clips")
    for by in SCORES:
        for i, point in enumerate(observed[by]):
            accepted = "none" if point.accepted_accuracy is None else f"{point.accepted_accuracy:.4f}"
            line = f"test at {by} {point.target}: accuracy of the accepted {accepted}, coverage {point.coverage:.4f}"
            report(line + (f", other words withheld {withheld[by][i]:.4f}" if others else ""))
    return metadata


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


def calibrated(metadata: Metadata, thresholds: Thresholds, scored: Mapping[str, Scored]) -> Metadata:
    """Metadata with these thresholds, which the validation clips gave, and with the accuracy on both splits."""
    return replace(
        metadata,
        thresholds=thresholds,
        calibration={
            "split": "validation",
            "clips": len(scored["validation"].truth),
            "method": "largest coverage whose accepted accuracy reaches the target (to 1e-6)",
        },
        accuracy={split: scored[split].accuracy() for split in ("validation", "test")},
    )


def _score_other_words(model: KeywordModel, checkpoint: Checkpoint, data_root: Path, cache: Path) -> Scored | None:
    """The model's answers on every clip of the data set's words that it has no class for; None where it has."""
    clips = [clip for clip in index(data_root) if clip.word not in checkpoint.labels]
    if not clips or UNKNOWN in checkpoint.labels:
        return None
    words = sorted({clip.word for clip in clips})
    data = [load_split(data_root, split, words, cache) for split in sorted({clip.split for clip in clips})]
    features = np.concatenate([split_features(d, checkpoint.front_end).numpy() for d in data])
    return score_clips(model, features, np.full(len(features), -1))


def parity(checkpoint: Checkpoint, model: KeywordModel, features: torch.Tensor) -> list[str]:
    """Compare torch, ONNX Runtime and the numpy reference on real clips, at batch 1 to 10; the largest differences."""
    variant = get_variant(checkpoint.recipe.variant)
    worst = dict.fromkeys(("class", "alpha", "vacuity", "entropy"), 0.0)
    start, size = 0, 1
    while start < len(features):
        x = features[start : start + size]
        with torch.inference_mode():
            logits = checkpoint.network(x)
            in_torch = evidential_head(logits, variant)
        in_onnx = model.run(x.numpy())
        a = evidence.alpha(logits.numpy().astype(np.float64), variant)
        top = np.arange(len(x)), in_onnx.labels
        onnx_values = (a[top], in_onnx.alpha, in_onnx.vacuity, in_onnx.entropy)  # a tie may go to either class
        numpy_values = (a.max(1), a, evidence.vacuity(a, variant), evidence.entropy(a))
        torch_values = (a[np.arange(len(x)), in_torch.label.numpy()], *(t.numpy() for t in in_torch[1:]))
        for key, value, *others in zip(worst, onnx_values, torch_values, numpy_values, strict=True):
            for other in others:
                gap = np.abs(value - other) / np.maximum(1, np.abs(other))
                worst[key] = max(worst[key], float(gap.max()))
        start, size = start + size, size % 10 + 1
    if (largest := max(worst.values())) > PARITY:
        raise ModelError(f"torch, ONNX Runtime and numpy differ by {largest:.2e}; expected at most {PARITY:.0e}")
    return [f"{key} {gap:.1e}" for key, gap in worst.items()]
