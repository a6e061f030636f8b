"""The operators that models need, for a build of onnxruntime that has these alone.

Onnxruntime fuses operators when it opens a model, and needs a kernel for each of what is left, too. So all count: those
of the file, those of the graph as it is fused anywhere, and as it is laid out for the processor of this machine.

Source of the format: onnxruntime's documentation of reduced operator configuration files, a line `domain;opset;A,B`.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kws_edge.errors import ModelError
from kws_edge.files import read_model
from kws_edge.model.onnx_fields import (
    ATTRIBUTE,
    ATTRIBUTE_GRAPH,
    ATTRIBUTE_GRAPHS,
    GRAPH,
    NODE,
    NODE_DOMAIN,
    OPERATOR,
    OPSET_IMPORT,
    SET_DOMAIN,
    SET_VERSION,
)
from kws_edge.model.protobuf import read_varint, values
from kws_edge.model.runtime import CPU, open_session
from kws_edge.text import collapsed, shown

_ONNX = "ai.onnx"


class Operator(NamedTuple):
    """An operator, by the domain and version of the set that it is taken from."""

    domain: str
    version: int
    name: str


def file_operators(data: bytes) -> set[Operator]:
    """Those of an ONNX file, as it is. Raises ModelError where it is damaged."""
    versions = {}
    for opset in values(data, OPSET_IMPORT):
        domain = b"".join(values(opset, SET_DOMAIN)).decode() or _ONNX
        versions[domain] = read_varint(values(opset, SET_VERSION)[0])[0]
    found = set()
    for graph in values(data, GRAPH):
        for node in _nodes(graph):
            domain = b"".join(values(node, NODE_DOMAIN)).decode() or _ONNX
            name = values(node, OPERATOR)[0].decode()
            if not (name.isidentifier() and re.fullmatch(r"[\w.]+", domain)):  # of the file's own functions, say
                raise ModelError(f"operator {shown(name)} of {shown(domain)}; expected the operators of onnxruntime")
            found.add(Operator(domain, versions.get(domain, 1), name))
    return found


def needed_operators(paths: Iterable[Path]) -> set[Operator]:
    """Those of models, and those that they become when they are opened here. Raises ModelError."""
    needed: set[Operator] = set()
    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        for path in paths:
            try:
                data = read_model(path)
                needed |= file_operators(data)
                for layouts in (True, False):
                    open_session(data, CPU, 1, optimised=optimised, layouts=layouts)
                    needed |= file_operators(optimised.read_bytes())
            except Exception as error:  # onnxruntime's errors have no class in common
                raise ModelError(f"{path}: {collapsed(error)}; expected an undamaged model") from None
    return needed


def to_config(operators: Iterable[Operator]) -> str:
    """The configuration file for onnxruntime's build."""
    sets: dict[tuple[str, int], list[str]] = {}
    for operator in sorted(operators):
        sets.setdefault((operator.domain, operator.version), []).append(operator.name)
    return "".join(f"{domain};{version};{','.join(names)}\n" for (domain, version), names in sets.items())


def _nodes(graph: bytes) -> Iterator[bytes]:
    """The nodes of a graph and of the graphs inside them."""
    for node in values(graph, NODE):
        yield node
        for attribute in values(node, ATTRIBUTE):
            for inner in (
                *values(attribute, ATTRIBUTE_GRAPH),
                *values(attribute, ATTRIBUTE_GRAPHS),
            ):
                yield from _nodes(inner)
