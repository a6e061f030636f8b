"""Even out the channels of a tensor that is to share one scale, without changing what the network computes.

A depthwise convolution followed by a 1×1 allows it: dividing channel c of the first by s_c and multiplying column c of
the second by s_c cancel. The depthwise weights have a scale for each channel anyway, so they lose nothing; the 1×1
weights take over half of the spread, which is why s is a square root.

Source: Nagel, van Baalen, Blankevoort and Welling 2019, "Data-free quantization through weight equalization and bias
correction", with ranges measured on data in place of those of the weights.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kws_edge.arrays import F32
from kws_edge.model.runtime import CPU, open_session

_SMALLEST = 1e-3
"""Of the largest channel's range: one with less, such as a dead one, is treated as if it had this."""


def equalise(model: onnx.ModelProto, features: F32, batch: int = 64) -> None:
    """Scale the weights on both sides of every pair of depthwise and 1×1 convolutions, in place.

    Pairs with something else in between, or whose tensor has another reader, are left alone.

    Parameters
    ----------
    features : float32 [n, coefficients, frames], on which the channels' ranges are measured.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    pairs = dict(_pairs(model.graph))
    largest = _largest(model, list(pairs), features, batch)
    for name, (depthwise, pointwise) in pairs.items():
        if not (peak := largest[name].max()) > 0:
            continue  # all of its channels are dead
        scale = np.sqrt(np.maximum(largest[name] / peak, _SMALLEST))
        _multiply(weights[depthwise.input[1]], 1 / scale[:, None, None, None])
        _multiply(weights[pointwise.input[1]], scale[None, :, None, None])


def _pairs(graph: onnx.GraphProto) -> list[tuple[str, tuple[onnx.NodeProto, onnx.NodeProto]]]:
    """The tensors between two such convolutions, with both."""
    found = []
    for node in graph.node:
        readers = [other for other in graph.node if node.output[0] in other.input]
        without_bias = node.op_type == "Conv" and len(node.input) == 2 and _groups(node) > 1
        if without_bias and len(readers) == 1 and readers[0].op_type == "Conv" and _groups(readers[0]) == 1:
            found.append((node.output[0], (node, readers[0])))
    return found


def _groups(conv: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in conv.attribute if attribute.name == "group"), 1)


def _largest(model: onnx.ModelProto, names: list[str], features: F32, batch: int) -> dict[str, F32]:
    """The largest absolute value of each channel of these tensors, [batch, channels, 1, frames], on the features."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    session = open_session(watched.SerializeToString(), CPU, threads=1)
    parts = [session.run(names, {"mfcc": features[i : i + batch]}) for i in range(0, len(features), batch)]
    peaks = [[np.abs(values).max((0, 2, 3)) for values in part] for part in parts]
    return {name: np.max(column, 0) for name, column in zip(names, zip(*peaks, strict=True), strict=True)}


def _multiply(weight: onnx.TensorProto, factor: F32) -> None:
    scaled = (numpy_helper.to_array(weight) * factor).astype(np.float32)
    weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))
