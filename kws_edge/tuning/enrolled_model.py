"""The model of an enrolled word: the trunk, the template and an evidential head, in one ONNX file.

The logit of the word is SLOPE (c - t), where c is the cosine of the window's vector to the template and t the
threshold. Its evidence, by the variant of the trunk, is near 0 for what is far from the takes, so that the vacuity is
near 1; there is next to none for anything else.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from kws_edge.model.evidence import alpha, vacuity
from kws_edge.model.graph_edit import Graph, Node, float_value, tensor
from kws_edge.model.metadata import TEMPLATE, WAKE_WORD, Metadata
from kws_edge.model.onnx_file import with_metadata
from kws_edge.model.selection import DEFAULT_TARGET, OperatingPoint
from kws_edge.model.shipped import shipped_models
from kws_edge.model.variants import get_variant
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.embedding import LAYER, STRETCH, TRUNK, Background
from kws_edge.tuning.enrolment import Enrolled

SLOPE: Final = 40.0
"""Of the logit in the cosine: from a tenth below the threshold to one above, the vacuity falls from 0.99 to 0.04."""


def build(enrolled: Enrolled, background: Background, metadata: Metadata) -> bytes:
    """The bytes of the ONNX file: the trunk, the template and the head of the variant in `metadata`, of two labels."""
    graph = Graph.parse(shipped_models()[TRUNK].read_bytes())
    K = len(metadata.labels)
    weights: dict[str, Any] = {
        "enrol_whitening": background.whitening,
        "enrol_offset": -(background.mean @ background.whitening),
        "enrol_tiny": np.float32(1e-6),
        "enrol_template": SLOPE * np.stack([enrolled.template, np.zeros_like(enrolled.template)]),
        "enrol_bias": np.array([-SLOPE * enrolled.threshold, -SLOPE], np.float32),
        "k": np.float32(K), "minus_one_over_log_k": np.float32(-1 / np.log(K)),
    }  # fmt: skip
    graph.initializers |= {name: tensor(name, value) for name, value in weights.items()}
    graph.nodes = [
        *graph.before(LAYER),
        Node.make("AveragePool", [LAYER], "stretches", kernel_shape=[1, STRETCH], strides=[1, STRETCH]),
        Node.make("Flatten", ["stretches"], "vector", axis=1),
        Node.make("Gemm", ["vector", "enrol_whitening", "enrol_offset"], "whitened"),
        Node.make("ReduceL2", ["whitened"], "length", axes=[1], keepdims=1),
        Node.make("Max", ["length", "enrol_tiny"], "length_floor"),
        Node.make("Div", ["whitened", "length_floor"], "direction"),
        Node.make("Gemm", ["direction", "enrol_template", "enrol_bias"], "logits", transB=1),
        *graph.after("logits"),
    ]
    graph.outputs["alpha"] = float_value("alpha", "batch", K)
    return with_metadata(graph.assemble(metadata.name), metadata)


def describe(name: str, word: str, enrolled: Enrolled, background: Background, trunk: Metadata) -> Metadata:
    """What the file says of itself."""
    variant = get_variant(trunk.variant)
    at = float(vacuity(alpha([0.0, -SLOPE], variant), variant))  # where the cosine is at the threshold
    settings = StreamSettings({"vacuity": at}, smoothing=0.0, hysteresis=0.1)
    takes = len(enrolled.cosines)
    found = takes - sum(enrolled.missed)
    made = {"purpose": WAKE_WORD, "method": TEMPLATE, "takes": takes, "trunk": trunk.name, "layer": LAYER}
    right = 1.0 if found else None
    point = OperatingPoint(DEFAULT_TARGET, at, right, found / takes, found / takes, found, takes)
    return replace(
        trunk,
        name=name,
        labels=(word, "_unknown_"),
        score="vacuity",
        thresholds={"vacuity": (point,)},
        calibration={"split": "the takes, each by the others", "clips": takes, "method": background.method},
        training=made,
        accuracy={},
        stream={"settings": settings.to_dict(), "calibration": {"method": background.method, "words_chosen": [word]}},
        padding="same",
    )
