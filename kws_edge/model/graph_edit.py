"""Take an ONNX graph apart and put another together, without the onnx package: for a head made on the device.

Nodes, initialisers, inputs and outputs are kept as the bytes that they are; only names are looked at.

Source: ModelProto, GraphProto, NodeProto, TensorProto and ValueInfoProto of onnx.proto.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.errors import ModelError
from kws_edge.model.onnx_fields import (
    ATTRIBUTE,
    ATTRIBUTE_INT,
    ATTRIBUTE_INTS,
    ATTRIBUTE_NAME,
    ATTRIBUTE_TYPE,
    GRAPH,
    GRAPH_NAME,
    INITIALIZER,
    INPUT,
    NODE,
    NODE_INPUT,
    NODE_NAME,
    NODE_OUTPUT,
    OPERATOR,
    OUTPUT,
    TENSOR_DIMS,
    TENSOR_NAME,
    TENSOR_RAW,
    TENSOR_TYPE,
    VALUE_NAME,
    VALUE_TYPE,
)
from kws_edge.model.protobuf import bytes_field, fields, values, varint_field

_FLOAT, _INT64 = 1, 7  # of TensorProto.DataType
_INTS, _INT = 7, 2  # of AttributeProto.AttributeType


@dataclass(frozen=True, slots=True)
class Node:
    """A node: the names that it reads and writes, and its bytes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    data: bytes

    @classmethod
    def parse(cls, data: bytes) -> "Node":
        """Read a NodeProto."""
        inputs, outputs = (tuple(v.decode() for v in values(data, n)) for n in (NODE_INPUT, NODE_OUTPUT))
        return cls(inputs, outputs, data)

    @classmethod
    def make(cls, operator: str, inputs: Iterable[str], output: str, **attributes: int | list[int]) -> "Node":
        """Write one of a standard operator, with one output, by whose name it is called."""
        names = tuple(inputs)
        data = b"".join(bytes_field(NODE_INPUT, name.encode()) for name in names)
        data += bytes_field(NODE_OUTPUT, output.encode()) + bytes_field(NODE_NAME, output.encode())
        data += bytes_field(OPERATOR, operator.encode())
        for name, value in attributes.items():
            data += bytes_field(ATTRIBUTE, _attribute(name, value))
        return cls(names, (output,), data)


def _attribute(name: str, value: int | list[int]) -> bytes:
    data = bytes_field(ATTRIBUTE_NAME, name.encode())
    if isinstance(value, int):
        return data + varint_field(ATTRIBUTE_INT, value) + varint_field(ATTRIBUTE_TYPE, _INT)
    return data + b"".join(varint_field(ATTRIBUTE_INTS, v) for v in value) + varint_field(ATTRIBUTE_TYPE, _INTS)


def tensor(name: str, value: npt.ArrayLike, dtype: Any = np.float32) -> bytes:
    """A TensorProto of float32 or int64."""
    array = np.ascontiguousarray(np.asarray(value, dtype))
    dims = b"".join(varint_field(TENSOR_DIMS, n) for n in np.shape(value))
    kind = _INT64 if array.dtype == np.int64 else _FLOAT
    data = dims + varint_field(TENSOR_TYPE, kind) + bytes_field(TENSOR_NAME, name.encode())
    return data + bytes_field(TENSOR_RAW, array.astype(array.dtype.newbyteorder("<")).tobytes())


def float_value(name: str, *dims: str | int) -> bytes:
    """A ValueInfoProto of float32; a dimension that is free has a name."""
    shape = b"".join(
        bytes_field(1, varint_field(1, d) if isinstance(d, int) else bytes_field(2, d.encode())) for d in dims
    )
    kind = varint_field(1, _FLOAT) + bytes_field(2, shape)
    return bytes_field(VALUE_NAME, name.encode()) + bytes_field(VALUE_TYPE, bytes_field(1, kind))


@dataclass(slots=True)
class Graph:
    """A model in parts.

    Attributes
    ----------
    nodes : in the order in which they run.
    initializers : name → TensorProto.
    inputs, outputs : name → ValueInfoProto.
    """

    model: bytes
    nodes: list[Node]
    initializers: dict[str, bytes]
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]

    @classmethod
    def parse(cls, model: bytes) -> "Graph":
        """Read the bytes of an ONNX file. Raises ModelError where they are none."""
        graphs = values(model, GRAPH)
        if len(graphs) != 1:
            raise ModelError(f"{len(graphs)} graphs; expected an ONNX file with one")
        nodes = [Node.parse(data) for data in values(graphs[0], NODE)]
        initializers = {values(t, TENSOR_NAME)[0].decode(): t for t in values(graphs[0], INITIALIZER)}
        inputs, outputs = (
            {values(value, VALUE_NAME)[0].decode(): value for value in values(graphs[0], n)} for n in (INPUT, OUTPUT)
        )
        return cls(model, nodes, initializers, inputs, outputs)

    def before(self, *names: str) -> list[Node]:
        """The nodes that some values are computed by. Raises ModelError where no node gives one of them."""
        for name in names:
            if not any(name in node.outputs for node in self.nodes):
                raise ModelError(f"no value {name!r} in the graph; expected a model of kws-export")
        wanted, kept = set(names), []
        for node in reversed(self.nodes):
            if wanted & set(node.outputs):
                kept.append(node)
                wanted |= set(node.inputs)
        return kept[::-1]

    def after(self, name: str) -> list[Node]:
        """The nodes that a value goes into, and those that theirs go into."""
        reached, kept = {name}, []
        for node in self.nodes:
            if reached & set(node.inputs):
                kept.append(node)
                reached |= set(node.outputs)
        return kept

    def assemble(self, name: str) -> bytes:
        """The bytes of an ONNX file with these parts, called by this name, without initialisers that nothing reads."""
        read = {name for node in self.nodes for name in node.inputs}
        data = b"".join(bytes_field(NODE, node.data) for node in self.nodes) + bytes_field(GRAPH_NAME, name.encode())
        data += _repeated(INITIALIZER, self.initializers, read)
        data += _repeated(INPUT, self.inputs, self.inputs)
        data += _repeated(OUTPUT, self.outputs, self.outputs)
        kept = b"".join(self.model[start:end] for number, start, _, end in fields(self.model) if number != GRAPH)
        return kept + bytes_field(GRAPH, data)


def _repeated(number: int, parts: Mapping[str, bytes], names: Collection[str]) -> bytes:
    return b"".join(bytes_field(number, part) for name, part in parts.items() if name in names)
