"""What a file holds, as plain data: a dump, any ONNX model, any ``.safetensors`` file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from torchferry.dumper.document import DOCUMENT
from torchferry.dumper.onnx_file import load_proto
from torchferry.dumper.record import Key
from torchferry.dumper.safetensors_file import Stored, stored_tensors
from torchferry.dumper.statistics import Statistics, statistics
from torchferry.dumper.store import read_entries
from torchferry.values import flatten, path_text, string_type

__all__ = [
    "DumpSummary",
    "EntrySummary",
    "ModelSummary",
    "TensorSummary",
    "TensorsSummary",
    "summarize",
]

_TYPE_NAMES = {number: name for name, number in onnx.TensorProto.DataType.items()}
_HALF_BYTES = (onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.FLOAT4E2M1)


@dataclass(frozen=True)
class TensorSummary:
    """One tensor or array.

    Attributes:
        name: where it stands in its entry: ``0.past_key_values.key_cache.1``.
        type: as `string_type` has it, with its shape: ``T1s2x3``.
        nbytes: of its elements.
        statistics: ``None`` where they were not asked for, or it holds no numbers.
    """

    name: str
    type: str
    nbytes: int
    statistics: Statistics | None = None


@dataclass(frozen=True)
class EntrySummary:
    """One value of a dump: its key, its `string_type` with shapes, its tensors."""

    key: Key
    type: str
    tensors: tuple[TensorSummary, ...]


@dataclass(frozen=True)
class DumpSummary:
    """A dump of torchferry; ``nbytes`` is that of its files."""

    path: Path
    nbytes: int
    entries: tuple[EntrySummary, ...]


@dataclass(frozen=True)
class TensorsSummary:
    """A ``.safetensors`` file of any origin; types as the format writes them: ``F32 2x3``."""

    path: Path
    nbytes: int
    tensors: tuple[TensorSummary, ...]
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelSummary:
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


def summarize(path: Path | str) -> DumpSummary | ModelSummary | TensorsSummary:
    """Say what a file or a folder holds. Of a dump one entry at a time is in memory.

    Raises:
        UsageError: it is missing, damaged, or none of the three.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".onnx":
        model = load_proto(path)
        if DOCUMENT not in {entry.key for entry in model.metadata_props}:
            return _of_model(path, model)
    elif path.is_file() and path.suffix == ".safetensors":
        tensors, metadata = stored_tensors(path)
        if DOCUMENT not in metadata:
            return _of_tensors(path, tensors, metadata)
    entries = tuple(_of_entry(key, value) for key, value in read_entries(path))
    beside = path.with_name(f"{path.name}_data")
    files = path.iterdir() if path.is_dir() else (path, beside)
    return DumpSummary(path, sum(file.stat().st_size for file in files if file.is_file()), entries)


def _of_entry(key: Key, value: Any) -> EntrySummary:
    leaves, _ = flatten(value)
    tensors = [
        TensorSummary(
            path_text(path), string_type(leaf, with_shape=True), leaf.nbytes, statistics(leaf)
        )
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor | np.ndarray | np.generic)
    ]
    return EntrySummary(key, string_type(value, with_shape=True), tuple(tensors))


def _of_tensors(
    path: Path, tensors: dict[str, Stored], metadata: dict[str, str]
) -> TensorsSummary:
    found = [
        TensorSummary(
            name, f"{tensor.dtype} {_shape_text(tensor.shape)}", tensor.end - tensor.begin
        )
        for name, tensor in tensors.items()
    ]
    return TensorsSummary(path, path.stat().st_size, tuple(found), tuple(metadata.items()))


def _of_model(path: Path, model: onnx.ModelProto) -> ModelSummary:
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
    return ModelSummary(
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
    )


def _graphs(
    graph: onnx.GraphProto | onnx.FunctionProto,
) -> Iterator[Any]:
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
    """``FLOAT batch x 3``; the kind of what is no tensor."""
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
    return f"{name} {_shape_text(sizes)}"


def _shape_text(shape: Iterable[object]) -> str:
    return "x".join(map(str, shape)) or "scalar"
