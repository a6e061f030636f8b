"""A model small enough to read, which keeps the contract of the shipped ones: it tells low, mid and high tones apart.

The mean MFCC of a window, turned back into log-mel energies, says how loud each third of the spectrum is; that is the
logit. A pure tone gives a certain answer, white noise an uncertain one.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kws_edge.model.features import FrontEnd, dct_matrix
from kws_edge.model.metadata import Metadata
from kws_edge.model.selection import WITHHOLD_ALL, OperatingPoint

LABELS = ("low", "mid", "high")
TONES = {"low": 300.0, "mid": 1500.0, "high": 5000.0}
"""A frequency, in Hz, in the middle of each third of the mel scale."""


def point(target: float, threshold: float) -> OperatingPoint:
    accepted = 0 if threshold == WITHHOLD_ALL else 90
    return OperatingPoint(
        target=target,
        threshold=threshold,
        accepted_accuracy=1.0 if accepted else None,
        coverage=accepted / 100,
        total_accuracy=accepted / 100,
        accepted=accepted,
        total=100,
    )


METADATA = Metadata(
    name="tiny",
    labels=LABELS,
    variant="softmax",
    front_end=FrontEnd(),
    score="entropy",
    thresholds={
        "entropy": (point(0.99, 0.7), point(0.995, 0.5), point(0.999, WITHHOLD_ALL)),
        "vacuity": (point(0.995, 0.5),),
    },
    calibration={"split": "validation", "clips": 100, "method": "largest coverage at the target"},
    training={"data": "none", "epochs": 0, "seed": 1},
    accuracy={"test": {"accuracy": 0.9, "low": 0.8, "high": 0.95, "clips": 100}},
    licence="Apache-2.0",
    attribution="nobody",
)


def build(
    metadata: Metadata | str | None = METADATA,
    *,
    input_name: str = "mfcc",
    frames: int = 128,
    n_mfcc: int = 64,
    labels: int = 3,
    outputs: tuple[str, ...] = ("class", "alpha", "vacuity", "entropy"),
    ir_version: int = 8,
    opset: int = 17,
    bias: float = 0.0,
) -> bytes:
    """The ONNX file as bytes; a `metadata` text is stored as it is, None leaves it out."""
    bands = np.array_split(np.arange(64), labels)
    mean_of = np.stack([np.isin(np.arange(64), band) / len(band) for band in bands], axis=1)
    weight = (dct_matrix(64, n_mfcc).T @ mean_of).astype(np.float32)
    constants: Mapping[str, Any] = {
        "weight": weight,
        "bias": np.float32(bias),
        "low": np.float32(-80),
        "high": np.float32(80),
        "tiny": np.finfo(np.float32).tiny,
        "K": np.float32(labels),
        "log_K": np.float32(np.log(labels)),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("ReduceMean", [input_name], ["mean"], axes=[2], keepdims=0),
        helper.make_node("MatMul", ["mean", "weight"], ["energy"]),
        helper.make_node("Add", ["energy", "bias"], ["logits"]),
        helper.make_node("Clip", ["logits", "low", "high"], ["clipped"]),
        helper.make_node("Exp", ["clipped"], ["alpha"]),
        helper.make_node("ArgMax", ["logits"], ["class"], axis=1, keepdims=0),
        helper.make_node("ReduceSum", ["alpha", "axis"], ["sum"], keepdims=1),
        helper.make_node("Div", ["alpha", "sum"], ["p"]),
        helper.make_node("Squeeze", ["sum", "axis"], ["total"]),
        helper.make_node("Add", ["total", "K"], ["strength"]),
        helper.make_node("Div", ["K", "strength"], ["vacuity"]),
        helper.make_node("Max", ["p", "tiny"], ["bounded"]),
        helper.make_node("Log", ["bounded"], ["log_p"]),
        helper.make_node("Mul", ["p", "log_p"], ["p_log_p"]),
        helper.make_node("ReduceSum", ["p_log_p", "axis"], ["negative"], keepdims=0),
        helper.make_node("Neg", ["negative"], ["nats"]),
        helper.make_node("Div", ["nats", "log_K"], ["entropy"]),
    ]
    shapes: Mapping[str, tuple[int, list[Any]]] = {
        "class": (TensorProto.INT64, ["batch"]),
        "alpha": (TensorProto.FLOAT, ["batch", labels]),
        "vacuity": (TensorProto.FLOAT, ["batch"]),
        "entropy": (TensorProto.FLOAT, ["batch"]),
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, ["batch", n_mfcc, frames])],
        [helper.make_tensor_value_info(name, *shapes[name]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)])
    if metadata is not None:
        text = metadata if isinstance(metadata, str) else metadata.to_json()
        onnx.helper.set_model_props(model, {"kws_edge": text})
    return model.SerializeToString()


def save(folder: Path, name: str = "tiny", **settings: Any) -> Path:
    """Write the file NAME.onnx, with that name in its metadata."""
    settings.setdefault("metadata", replace(METADATA, name=name))
    path = folder / f"{name}.onnx"
    path.write_bytes(build(**settings))
    return path
