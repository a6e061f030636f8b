"""The logits behind a model file's answers, which the file computes and does not give."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from kws_edge.arrays import F32
from kws_edge.errors import ModelError
from kws_edge.model.runtime import CPU, open_session

LOGITS = "logits"
"""The tensor's name in every graph of graph/build.py, and in what `kws-export quantise` makes of one."""


def logits_of(model: onnx.ModelProto, features: F32, batch: int = 64) -> F32:
    """What the graph's head takes in, of every window: float32 [n, coefficients, frames] → float32 [n, K].

    Raises
    ------
    ModelError : the graph has no tensor of that name.
    """
    if not any(LOGITS in node.output for node in model.graph.node):
        raise ModelError(f"{model.graph.name} has no tensor {LOGITS}; expected a file of kws-export export")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.append(helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, None))
    session = open_session(shown.SerializeToString(), CPU, 1)
    parts = [session.run([LOGITS], {"mfcc": features[i : i + batch]})[0] for i in range(0, len(features), batch)]
    return np.concatenate(parts)
