"""The outline of an ONNX model as plain data, read without its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it has no types

from torchferry.errors import UsageError
from torchferry.graph.integrity import check_text
from torchferry.graph.runtime import LEAST_KEY

__all__ = ["CONDITIONS_KEY", "STATE_KEY", "Outline", "PathLike", "outline", "read_proto"]

STATE_KEY = "pkg.torchferry.state"  # of the metadata: the state before the first call
CONDITIONS_KEY = "pkg.torchferry.conditions"  # of the metadata: those of calls, one a line

PathLike = str | Path

_TYPE_NAMES = {number: name for name, number in onnx.TensorProto.DataType.items()}
_HALF_BYTES = (onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.FLOAT4E2M1)


@dataclass(frozen=True)
class Outline:
    """An ONNX model of any origin.

    Attributes:
        path: the file.
        nbytes: of the file, without those beside it.
        producer: who made it, by its own word.
        ir_version: of the file format.
        opsets: domain and version.
        inputs: name and type; initializers among them are left out.
        outputs: name and type.
        operators: operator and how often it stands in the graph, its subgraphs and functions;
            the most frequent first, other domains than ONNX's named in front.
        initializers: how many; those of subgraphs too.
        initializer_bytes: of their elements.
        external: names of the files beside it that hold some of them.
        metadata: names of its own properties.
        conditions: what sizes of its inputs must fulfil, each with the line that decided it; of
            a model that torchferry exported.
        least_onnxruntime: the oldest version that computes it right, if the model says so.
        state: name and type of what the model carries from call to call: the input ``state.NAME``
            is given the output ``state_next.NAME`` of the call before.
    """

    path: Path
    nbytes: int
    producer: str
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    operators: tuple[tuple[str, int], ...]
    initializers: int
    initializer_bytes: int
    external: tuple[str, ...]
    metadata: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    least_onnxruntime: str = ""
    state: tuple[tuple[str, str], ...] = ()


def read_proto(path: PathLike) -> onnx.ModelProto:
    """Read a model and nothing beside it: weights in other files stay there.

    Raises:
        UsageError: there is no such file, it is no ONNX model, or it cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise UsageError(f"{path} is no ONNX model, or it is cut short") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if not model.ir_version or not model.opset_import:
        raise UsageError(f"{path} is no ONNX model, or it is cut short")
    check_text(model, str(path))
    return model


def outline(path: PathLike) -> Outline:
    """Say what a model consists of; nothing of it is run.

    Raises:
        UsageError: as `read_proto`.
    """
    path = Path(path)
    model = read_proto(path)
    graphs = list(_graphs(model.graph))
    nodes = [node for graph in graphs for node in graph.node]
    for function in model.functions:
        nodes += [node for graph in _graphs(function) for node in graph.node]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    named = {tensor.name for tensor in model.graph.initializer}
    external = {
        entry.value
        for tensor in tensors
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return Outline(
        path,
        path.stat().st_size,
        f"{model.producer_name} {model.producer_version}".strip(),
        model.ir_version,
        tuple((opset.domain or "ai.onnx", opset.version) for opset in model.opset_import),
        tuple((i.name, _type_text(i.type)) for i in model.graph.input if i.name not in named),
        tuple((output.name, _type_text(output.type)) for output in model.graph.output),
        tuple(Counter(map(_operator, nodes)).most_common()),
        len(tensors),
        sum(map(_nbytes, tensors)),
        tuple(sorted(external)),
        tuple(entry.key for entry in model.metadata_props),
        tuple(
            line
            for entry in model.metadata_props
            if entry.key == CONDITIONS_KEY
            for line in entry.value.splitlines()
        ),
        next((e.value for e in model.metadata_props if e.key == LEAST_KEY), ""),
        tuple(_state(model)),
    )


def _state(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    if all(entry.key != STATE_KEY for entry in model.metadata_props):
        return
    outputs = {output.name for output in model.graph.output}
    for value in model.graph.input:
        name = value.name.removeprefix("state.")
        if name != value.name and f"state_next.{name}" in outputs:
            yield name, _type_text(value.type)


def _graphs(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[Any]:
    """A graph or a function, and the graphs in attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(inner)


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _nbytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    try:
        size = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        return len(tensor.raw_data)
    count: int = math.prod(tensor.dims) * size
    return (count + 1) // 2 if tensor.data_type in _HALF_BYTES else count


def _type_text(type_: onnx.TypeProto) -> str:
    """``FLOAT[batch, 3]``; the kind of what is no tensor."""
    kind = type_.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return kind.removesuffix("_type")
    tensor = type_.tensor_type
    name = _TYPE_NAMES.get(tensor.elem_type, f"type {tensor.elem_type}")
    if not tensor.HasField("shape"):
        return f"{name} of any shape"
    sizes = [
        dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?")
        for dim in tensor.shape.dim
    ]
    return f"{name}[{', '.join(map(str, sizes))}]"
