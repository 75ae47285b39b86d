"""Pieces of an ONNX graph: cut out between chosen values, and run alone.

A piece is a model of some nodes of a larger one. It takes what these nodes take from outside as
inputs and is given only the weights that they read, so that walking a model piece by piece needs
memory for one piece and computes everything once.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from torchferry.errors import RunError, UsageError
from torchferry.graph import io
from torchferry.graph.reference import Region
from torchferry.graph.subgraph import subgraphs
from torchferry.runner import to_tensor
from torchferry.seams.ort import ort_errors
from torchferry.values.dtype import element_type

__all__ = [
    "LEVELS",
    "Runner",
    "cut",
    "ort_value",
    "outside",
    "reads",
    "tensor_of_ort",
    "weight_bytes",
]

LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""onnxruntime's graph optimization levels, from none to all."""

_ERRORS = ort_errors()
_INLINE = 1024  # bytes; onnxruntime's shape inference reads small constants in the model
_COPIED = 2**28  # bytes of weights that may be copied into a session
_FOLDING = "ConstantFolding"
_QUIET = 4  # onnxruntime's log level: errors come back as exceptions
_FED = "::reference"  # end of the name of an input that stands for a value of the piece itself


def ort_value(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """A tensor of any dtype that ONNX has, for onnxruntime; a complex one as pairs of numbers.

    Raises:
        RunError: ONNX has no such dtype.
    """
    plain = tensor.detach().cpu()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    plain = plain.contiguous()
    kind = element_type(plain.dtype)
    if not kind:
        raise RunError(f"onnxruntime takes no {tensor.dtype}")
    # numpy has no bfloat16 or float8: hand over the bits.
    bits = {1: torch.uint8, 2: torch.int16}.get(plain.element_size())
    if plain.is_floating_point() and bits is not None:
        plain = plain.view(bits)
    # A copy: onnxruntime does not keep the array's memory alive.
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(plain.shape), kind)
    value.update_inplace(plain.numpy())
    return value


def tensor_of_ort(value: onnxruntime.OrtValue) -> torch.Tensor | None:
    """The tensor of what onnxruntime computed; ``None`` for a sequence, a map, or strings."""
    return to_tensor(value) if value.is_tensor() else None


def outside(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """What nodes read that none of them makes, weights left out; subgraphs read too."""
    made = {value for node in nodes for value in node.outputs}
    found: dict[ir.Value, None] = {}
    for node in nodes:
        for value in reads(node):
            if value not in made and not _is_weight(value):
                found.setdefault(value)
    return list(found)


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node takes from its own graph, also inside its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        yield from _taken(graph, node.graph)


def _taken(graph: ir.Graph, outer: ir.Graph | ir.Function | None) -> Iterator[ir.Value]:
    """What a graph takes from another that it stands in, however deep."""
    for node in graph:
        yield from (value for value in node.inputs if value is not None and value.graph is outer)
        for inner in subgraphs(node):
            yield from _taken(inner, outer)
    yield from (value for value in graph.outputs if value.graph is outer)


def _is_weight(value: ir.Value) -> bool:
    return value.is_initializer()


def cut(
    model: ir.Model,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    types: Mapping[str, onnxruntime.OrtValue],
    fed: Collection[str] = (),
) -> ir.Model:
    """Copy the nodes between some values into a model of their own; weights are shared.

    Args:
        model: left as it is.
        inputs: what the nodes read from outside.
        outputs: what is wanted of them.
        types: a value for each input and each of ``fed``, for its element type.
        fed: names of values whose readers inside shall take an input in their place, called
            ``NAME::reference``.
    """
    graph = ir.convenience.extract(model.graph, inputs, outputs)
    for value in [*graph.inputs, *(v for node in graph for v in node.outputs)]:
        value.shape = None  # what is declared may be what is wrong
    for value in graph.inputs:
        value.type = _type(types[str(value.name)])
    made = {str(value.name): value for node in graph for value in node.outputs if value.name}
    for name in fed:
        if name in made and made[name].uses():
            given = ir.Value(name=name + _FED, type=_type(types[name]))
            for node, index in tuple(made[name].uses()):
                node.replace_input_with(index, given)
            graph.inputs.append(given)
    functions = [function.clone() for function in model.functions.values()]
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)


def _type(value: onnxruntime.OrtValue) -> ir.TypeProtocol:
    text = value.data_type()  # tensor(float), seq(tensor(float))
    inner = text.removeprefix("seq(").removeprefix("tensor(").rstrip(")")
    number = value.element_type() if value.is_tensor() else _SEQUENCES.get(inner, 1)
    tensor = ir.TensorType(ir.DataType(number))
    return ir.SequenceType(tensor) if text.startswith("seq(") else tensor


_SEQUENCES = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "string": 8, "bool": 9,
              "float16": 10, "double": 11}  # fmt: skip


def _refusal(error: Exception) -> RunError:
    return RunError(f"onnxruntime: {' '.join(str(error).split())[:400]}")


class Runner:
    """Runs models and pieces of them on onnxruntime.

    Attributes:
        level: a key of `LEVELS`.
        providers: onnxruntime's execution providers.
        beside: files with weights, all in one folder. Pieces of a model whose weights lie in them
            are written there for a moment and refer to them: nothing is copied.
    """

    def __init__(
        self,
        level: str = "none",
        providers: Sequence[str] | None = None,
        beside: Sequence[Path] = (),
    ) -> None:
        """Choose how.

        Raises:
            UsageError: there is no such level or provider here.
        """
        available = onnxruntime.get_available_providers()
        for kind, known, asked in (
            ("optimization level", list(LEVELS), [level]),
            ("provider", available, list(providers or ())),
        ):
            for name in asked:
                if name not in known:
                    raise UsageError(
                        f"onnxruntime has no {kind} {name!r} here: choose from {', '.join(known)}"
                    )
        self.level = level
        self.providers = list(providers or ["CPUExecutionProvider"])
        self.beside = beside

    def __call__(
        self, model: ir.Model, feeds: Mapping[str, onnxruntime.OrtValue]
    ) -> dict[str, onnxruntime.OrtValue]:
        """Run a model once.

        Args:
            model: its weights may lie in files or in torch's memory.
            feeds: by name of the input; an input ``NAME::reference`` takes that of ``NAME``.

        Raises:
            RunError: onnxruntime refuses the model, or fails.
        """
        return self.loaded(model)(feeds)

    def loaded(
        self, model: ir.Model
    ) -> Callable[[Mapping[str, onnxruntime.OrtValue]], dict[str, onnxruntime.OrtValue]]:
        """Load a model to be run several times, with other random numbers each time.

        Raises:
            RunError: onnxruntime refuses the model; the function raises it when a run fails.
        """
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _QUIET
        options.graph_optimization_level = LEVELS[self.level]
        options.intra_op_num_threads = torch.get_num_threads()
        options.enable_cpu_mem_arena = False  # what one piece leaves would stay beside the next
        options.add_session_config_entry("session.disable_prepacking", "1")  # copies of weights
        inputs = [str(v.name) for v in model.graph.inputs if not v.is_initializer()]
        names = [str(value.name) for value in model.graph.outputs]
        try:
            session = self._load(model, options)
        except _ERRORS as error:
            raise _refusal(error) from error

        def run(feeds: Mapping[str, onnxruntime.OrtValue]) -> dict[str, onnxruntime.OrtValue]:
            given = {name: feeds[name.removesuffix(_FED)] for name in inputs}
            try:
                found = session.run_with_ort_values(names, given)
            except _ERRORS as error:
                raise _refusal(error) from error
            return dict(zip(names, found, strict=True))

        return run

    def _load(
        self, model: ir.Model, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        """Onnxruntime copies weights that are handed to it, and maps those in a file."""
        if self.beside:
            path = self.beside[0].with_name(f".torchferry-{secrets.token_hex(8)}.part.onnx")
            try:
                io.save(model, path, regions=[Region(file) for file in self.beside])
                # What is folded is a copy: a weight as float32, or transposed, which a product
                # takes as it is otherwise.
                return onnxruntime.InferenceSession(
                    path, options, providers=self.providers, disabled_optimizers=[_FOLDING]
                )
            finally:
                for part in path.parent.glob(f"{path.name}*"):
                    part.unlink()
        used = [v for v in model.graph.initializers.values() if not _is_unused(v)]
        large = [value for value in used if _is_large(value)]
        if sum(weight.const_value.nbytes for weight in large if weight.const_value) > _COPIED:
            with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
                path = Path(folder) / "model.onnx"
                io.save(model, path)
                return onnxruntime.InferenceSession(path, options, providers=self.providers)
        arrays = [_array(value) for value in large]  # onnxruntime does not keep them alive
        if large:
            make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            kinds = [value.const_value.dtype.value for value in large if value.const_value]
            values = list(map(make, arrays, kinds))
            options.add_external_initializers([value.name for value in large], values)
        content = _serialized(model, large)
        return onnxruntime.InferenceSession(content, options, providers=self.providers)


def weight_bytes(node: ir.Node) -> int:
    """How much the weights that a node reads take."""
    tensors = [value.const_value for value in reads(node) if value.is_initializer()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _is_unused(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output() and not value.is_graph_input()


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
        return False
    return tensor.nbytes > _INLINE


def _array(value: ir.Value) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(value.const_value.numpy()) if value.const_value else np.empty(0)


def _serialized(model: ir.Model, large: Sequence[ir.Value]) -> bytes:
    """The model, its large weights only named, the others in it; it is as before afterwards."""
    kept = [(v, v.const_value) for graph in model.graphs() for v in graph.initializers.values()]
    named = set(large)
    try:
        for value, tensor in kept:
            if isinstance(tensor, ir.ExternalTensor) and value not in named:
                value.const_value = ir.Tensor(tensor.numpy(), tensor.dtype, name=value.name)
            elif tensor is not None and value in named:
                shape = ir.Shape(tensor.shape.numpy())
                value.const_value = ir.ExternalTensor(
                    "weights", 0, tensor.nbytes, tensor.dtype, shape=shape, name=str(value.name)
                )
        proto = ir.to_proto(model)
    finally:
        for value, tensor in kept:
            value.const_value = tensor
    # Onnxruntime drops what nothing reads before it looks for what it was named.
    used = [t for t in proto.graph.initializer if not _is_unused(model.graph.initializers[t.name])]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(used)
    content: bytes = proto.SerializeToString()
    return content
