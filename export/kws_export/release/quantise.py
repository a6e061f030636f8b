"""From a float model file to its int8 form: integer convolutions, everything else as it was.

Post-training static quantisation in the QDQ form: QuantizeLinear and DequantizeLinear nodes, which are standard
operators, say which tensors have 8 bits, and ONNX Runtime runs what lies between them on its integer kernels. Weights
are symmetric, with a scale for each output channel; activations are uint8, with a scale and zero point for each tensor,
from the smallest and largest value that training clips give.

What stays float, and why:

- The first convolution. Its input, the MFCC, spans 200 in its first coefficient and 6 in most others, which one scale
  for all of them does not serve; and it is no slower in float.
- Pooling, classifier and head: small, and what probability, vacuity and entropy depend on to the last digit.

Weights use 7 of their 8 bits. On x86 processors without VNNI, the integer kernels add pairs of products in 16 bits, and
with all 8 they overflow: answers would depend on the processor, and be worse where they do.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import checker, helper

from kws_edge.arrays import F32
from kws_edge.errors import ModelError
from kws_edge.files import replace_file
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import KEY, Metadata
from kws_edge.model.onnx_file import model_name
from kws_edge.tuning.record import check_targets, remove_forms
from kws_export.data.batches import clip_features
from kws_export.data.speech_commands import split_rule
from kws_export.data.splits import load_split
from kws_export.evaluation.score_sets import clip_sets
from kws_export.evaluation.scoring import Scored, calibrate, calibrated, observe, score_clips, withheld_shares
from kws_export.graph.build import load_model, run_model, save_model
from kws_export.release.card import model_card
from kws_export.release.equalise import equalise
from kws_export.release.parity import WITHOUT_WORD, File, Parity, compare, measure_speed
from kws_export.stored import check_card, check_writable
from kws_export.training.recipe import Recipe

SETS = ("validation", "test", *WITHOUT_WORD)
"""What both files are run on, as `score_sets` names it; a set for which there are no recordings is left out."""

_OPERATORS = ("Conv", "Add", "Relu")
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Quantised:
    """An int8 model before it is written."""

    model: onnx.ModelProto
    parity: Parity
    card: str

    def save(self, path: Path) -> None:
        """Write the file NAME.onnx, and its card beside it; forms of an earlier model of that name are removed."""
        remove_forms(path)  # of the model that is written over: there are no such forms of an int8 model
        save_model(self.model, path)
        replace_file(path.with_suffix(".md"), self.card)


def quantise(
    source: Path,
    data_root: Path,
    out: Path,
    *,
    cache: Path,
    clips: int,
    seed: int,
    command: str,
    overwrite: bool = False,
    step: Callable[[], None] = lambda: None,
) -> Quantised:
    """Quantise a model, calibrate its thresholds on validation, and compare it with what it was made from.

    Parameters
    ----------
    source : the float model's file.
    data_root : Speech Commands, in its public layout.
    out : the file to be written later, NAME.onnx, which gives the model its name.
    cache : decoded clips, as for `load_split`.
    clips, seed : how many training clips set the ranges, or all where there are fewer, and which. 128 and 1024 give
        accuracies 0.1 points apart.
    command : what rebuilds the file, for the card.
    overwrite : also where `out` or a form of it exists.
    step : called after each of `len(SETS)` + 1 steps, or fewer where a set is missing.

    Raises
    ------
    ModelError : the source is no model of ours, is quantised already, or does not say by which recipe it was trained.
    SettingError, AudioError : the data cannot be used, or `out` is no name for a new .onnx file, or is not to be
        overwritten.
    """
    check_targets(source, out, overwrite=overwrite)
    check_card(out, overwrite=overwrite)
    name = model_name(out)
    check_writable(out)
    float_model = KeywordModel.load(source)
    before = float_model.metadata
    if "recipe" not in before.training:
        raise ModelError(f"{source} does not say how it was trained; expected a file of kws-export export")
    test_list = Recipe.from_dict(before.training["recipe"]).test_list
    ranges = calibration_features(before, data_root, cache, clips, seed)
    about = {
        "source": before.name,
        "weights": "int8, 7 bits of it used, a scale for each output channel; channels equalised before",
        "activations": "uint8, a scale and zero point for each tensor",
        "float": "the first convolution, pooling, classifier and head",
        "ranges": f"smallest and largest value on {len(ranges)} training clips, seed {seed}",
        "tool": f"onnxruntime {ort.__version__}",
    }
    draft = replace(before, name=name, stream=None, training={**before.training, "quantisation": about})
    model = quantised_model(source, draft, ranges)
    step()
    integer_model = run_model(model)
    answers: tuple[dict[str, Scored], dict[str, Scored]] = ({}, {})
    for clip_set in clip_sets(data_root, before.labels, before.front_end, cache, test_list=test_list):
        if clip_set.name in SETS:
            features, truth = clip_set.load()
            for of, runs in zip(answers, (float_model, integer_model), strict=True):
                of[clip_set.name] = score_clips(runs, features, truth)
            step()
    speed = measure_speed(float_model, integer_model, ranges)
    thresholds = calibrate(answers[1]["validation"])
    metadata = calibrated(draft, thresholds, answers[1])
    helper.set_model_props(model, {KEY: metadata.to_json()})
    size = model.ByteSize()
    parity = compare(File(before, source.stat().st_size, answers[0]), File(metadata, size, answers[1]), speed)
    test, others = answers[1]["test"], answers[1].get("other_words")
    observed = observe(thresholds, test)
    shares = withheld_shares(thresholds, others) if others else {}
    card = model_card(metadata, size, test, observed, shares, command, parity, splits=split_rule(data_root))
    return Quantised(model, parity, card)


def calibration_features(metadata: Metadata, data_root: Path, cache: Path, clips: int, seed: int) -> F32:
    """Features of so many training clips, or of all, drawn by the seed: float32 [n, coefficients, frames].

    Raises
    ------
    SettingError, AudioError : the data cannot be used.
    """
    data = load_split(data_root, "train", metadata.labels, cache)
    chosen = np.random.default_rng(seed).permutation(len(data))[:clips]
    return np.stack([clip_features(data.samples[i], int(data.lengths[i]), metadata.front_end) for i in chosen])


def quantised_model(source: Path, metadata: Metadata, features: F32) -> onnx.ModelProto:
    """The int8 form of a model file, with these metadata; ranges are those of features [n, coefficients, frames].

    The opset and IR version stay what they are.

    Raises
    ------
    ModelError : the source is no model of ours, or is quantised already.
    """
    from onnxruntime.quantization import QuantType, quant_utils, quantize_static

    original, _ = load_model(source)
    if any(node.op_type == "QuantizeLinear" for node in original.graph.node):
        raise ModelError(f"{source} is quantised already; expected a float model of kws-export export")
    equalise(original, features)
    quant_utils.add_pre_process_metadata(original)  # else it advises to fold what export has folded
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(original, given)
        quantize_static(
            given, made, _Batches(features),
            op_types_to_quantize=list(_OPERATORS), nodes_to_quantize=_integer_nodes(original.graph),
            per_channel=True, reduce_range=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        model = onnx.load(made)
    del model.graph.value_info[:]  # shapes that the loader infers again
    model.graph.name, model.producer_name, model.producer_version = metadata.name, original.producer_name, ""
    helper.set_model_props(model, {KEY: metadata.to_json()})
    checker.check_model(model, full_check=True)
    return model


class _Batches:
    """Hands out calibration data as onnxruntime asks for it."""

    def __init__(self, features: F32) -> None:
        parts: Iterator[F32] = iter(np.split(features, range(_BATCH, len(features), _BATCH)))
        self._feeds = ({"mfcc": part} for part in parts)

    def get_next(self) -> dict[str, F32] | None:
        """The next batch by input name, None after the last."""
        return next(self._feeds, None)


def _integer_nodes(graph: onnx.GraphProto) -> list[str]:
    """The nodes between the first convolution and the classifier that become integer arithmetic."""
    names, behind_first = [], set[str]()
    for node in graph.node:
        if node.op_type == "Gemm":
            break
        behind = not behind_first.isdisjoint(node.input)
        if behind and node.op_type in _OPERATORS:
            names.append(node.name)
        if behind or node.op_type == "Conv":
            behind_first.update(node.output)
    return names
