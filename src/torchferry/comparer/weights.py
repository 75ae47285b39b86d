"""Initializers beside the parameters they stand for: a wrong weight is named before any node.

An initializer is aligned by its name, or by the module that its reader stands in, where only one
parameter of that module has its shape. Others are not aligned. Weights may be stored transposed,
packed with others, split, quantized, or rounded; scaled by what an optimizer put into them, they
are no fault. Only where a name says so is a weight reported without further evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import onnx_ir as ir
import torch

from torchferry.comparer.comparison import Row, WeightDifference
from torchferry.comparer.dequantize import Stored, dequantized
from torchferry.comparer.piece import reads
from torchferry.comparer.provenance import all_scopes, layer_of
from torchferry.comparer.scopes import move_between
from torchferry.comparer.setting import Setting
from torchferry.comparer.weight_error import Error, channel_scales, measure
from torchferry.comparer.weight_form import (
    Form,
    forms_of,
    packed_forms,
    recurrent_forms,
    split_forms,
)
from torchferry.graph.reference import is_unbound
from torchferry.graph.subgraph import subgraphs
from torchferry.values.dtype import tensor_of

__all__ = ["Weights"]

# How sure it is which parameter an initializer stands for: its name says so; the module, and the
# numbers are much the same; only the module and the shape.
_Level = Literal["name", "numbers", "shape"]

_OURS = re.compile(r"\.(T|LSTM|GRU|RNN)$|_quantized$|_Q4$|_Q8$")  # the same weight, in other form
_STEPS = re.compile(r"_(scale|scales|zero_point|zp)s?$")
_NUMBERED = re.compile(r".*(^|_|::)\d+(_output_\d+)?$")  # such names may be of other things
_RECURRENT = ("LSTM", "GRU", "RNN")
_PRODUCTS = re.compile(r"(Fused|QLinear|Nhwc)?(Conv|ConvTranspose|Gemm|MatMul)(Integer|NBits)?$")
_FOLDED = {"rtol": 1e-4}  # what a normalization's own arithmetic may add to rounding
_EPS = (1e-5, 1e-3, 1e-6, 1e-4, 0.0)  # of normalizations; the first is PyTorch's default
_HANDED_ON = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Transpose", "Unsqueeze")


@dataclass(frozen=True)
class _Suspect:
    """A weight that seems to differ.

    Attributes:
        difference: from the parameter that it seems to stand for.
        level: how sure that is.
        reader: the node that reads it.
    """

    difference: WeightDifference
    level: _Level
    reader: ir.Node


class Weights:
    """Looks at the initializers of a model as its nodes are walked, each once.

    Nothing is known of a dump's weights: none of its initializers is aligned.
    """

    def __init__(
        self, setting: Setting, atol: float | None = None, rtol: float | None = None
    ) -> None:
        """Collect the parameters.

        Args:
            setting: what is compared.
            atol: what a weight may differ by, besides rounding.
            rtol: the same, as a share of each element.
        """
        self._graph = setting.onnx.graph
        self._limits = {"atol": atol or 0.0, "rtol": rtol or 0.0}
        self._other = setting.reference.model is not None
        self._tensors = _parameters(setting)
        self._shapes = {
            name: torch.Size(map(int, tensor.shape)) for name, tensor in self._tensors.items()
        }
        self._written = _written_buffers(setting)
        parents = self._parents = {_parent(name) for name in self._shapes}
        names = {_parent(str(name)) for name in self._graph.initializers if "." in str(name)}
        self._move = move_between(names, parents)
        self._scope_move = move_between(all_scopes(self._graph), parents)
        self._seen: set[ir.Value] = set()
        self._scaled: set[str] = set()
        self._suspects: list[_Suspect] = []

    def look_at(self, nodes: Iterable[ir.Node]) -> None:
        """Compare the initializers that nodes read, those inside their subgraphs too."""
        if not self._tensors:
            return
        for node in (inner for node in nodes for inner in _with_inner(node)):
            for value in node.inputs:
                if value is not None and value.const_value is not None and value not in self._seen:
                    self._seen.add(value)
                    if value.is_initializer() and value.dtype != ir.DataType.STRING:
                        self._check(value, node)

    def confirmed(self, rows: Sequence[Row]) -> tuple[WeightDifference, ...]:
        """The weights that differ.

        Of those that no name aligns, only the ones whose reader's result is wrong: from right
        values, unless its numbers show which parameter it is.

        Args:
            rows: what the comparison of values gave.
        """
        wrong = {row.name: row.verdict in ("differs", "failed") for row in rows}
        return tuple(one.difference for one in self._suspects if self._holds(one, wrong))

    def _holds(self, suspect: _Suspect, wrong: Mapping[str, bool]) -> bool:
        """Whether a weight differs, by what is known of the values around its reader."""
        name = suspect.difference.name
        vector = len(self._shapes[name]) < 2
        if vector and _parent(name) in self._scaled:
            return False  # the bias of a product whose weight is scaled
        if suspect.level == "name":
            return True
        if not _is_wrong_after(suspect.reader, wrong):
            return False
        # A vector of a module's shape may be any, as two biases in one.
        alone = not vector and not _is_wrong_before(suspect.reader, wrong)
        return suspect.level == "numbers" or alone

    def _check(self, value: ir.Value, node: ir.Node) -> None:
        tensor = value.const_value
        if tensor is None or is_unbound(tensor):
            return
        stored = dequantized(value, node, self._graph.initializers)
        held: Any = tensor.numpy() if stored is None else stored
        shape = tuple((held.values if isinstance(held, Stored) else held).shape)
        reader = _reader(node)
        errors: list[tuple[Error, Form, _Level]] = []
        for form, level in self._candidates(str(value.name), shape, node, reader):
            expected = self._expected(form)
            if expected.is_floating_point() != _is_float(tensor.dtype, stored):
                continue
            if expected.is_complex() or tuple(expected.shape) != shape:
                continue
            error = measure(expected, held, **self._limits)
            if error is None:
                return
            errors.append((error, form, level))
        if errors:
            self._suspect(value, held, reader, errors)

    def _suspect(
        self,
        value: ir.Value,
        held: Any,
        reader: ir.Node,
        errors: Sequence[tuple[Error, Form, _Level]],
    ) -> None:
        """Keep the likeliest difference, if it is one of a single parameter."""
        best = min(errors, key=lambda item: item[0].wrong)
        error, form, level = best if best[0].similar else errors[0]
        if level != "name":
            if error.similar:
                level = "numbers"
            elif len({item[1].names for item in errors}) > 1 or level == "numbers":
                return  # it may be any of them, or something else
        if 2 * error.wrong > error.size and _PRODUCTS.match(reader.op_type):
            expected = self._expected(form)
            scales = channel_scales(expected, held)
            if scales is not None:
                self._scaled.add(_parent(form.names[0]))
                if self._is_normalization(scales):
                    folded = measure(expected.cpu() * scales, held, **{**self._limits, **_FOLDED})
                    if folded is None:
                        return
                    error = folded
                else:
                    level = "shape"
        shapes = [self._shapes[name] for name in form.names]
        name, index = form.place(shapes, error.position)
        difference = WeightDifference(
            name, str(value.name), index, error.expected, error.got, error.abs, error.wrong,
            error.size, str(reader.name or ""),
        )  # fmt: skip
        self._suspects.append(_Suspect(difference, level, reader))

    def _is_normalization(self, scales: torch.Tensor) -> bool:
        """Whether most channels are scaled as a batch normalization of the model scales them."""
        scales = scales.reshape(-1)
        for name in self._tensors:
            module, _, kind = name.rpartition(".")
            if kind != "running_var" or self._shapes[name] != scales.shape:
                continue
            start = f"{module}." if module else ""
            variance = _as_tensor(self._tensors[name]).cpu().double()
            weight = self._tensors.get(f"{start}weight")
            factor = 1.0 if weight is None else _as_tensor(weight).cpu().double()
            for eps in _EPS:
                close = torch.isclose(scales, factor / (variance + eps).sqrt(), rtol=1e-3)
                if 2 * int(close.sum()) >= scales.numel():
                    return True
        return False

    def _candidates(
        self, name: str, shape: tuple[int, ...], node: ir.Node, reader: ir.Node
    ) -> Iterator[tuple[Form, _Level]]:
        """Forms that an initializer may have, with how sure they are: the surest only."""
        known, level = self._named(name)
        turned = _wants_transposed(node, name)
        recurrent = reader.op_type if reader.op_type in _RECURRENT else ""
        if known and level is not None:
            forms = [*forms_of(known, self._shapes[known], shape, turned=turned)]
            if recurrent:
                rows = recurrent_forms(_parent(known), self._shapes, shape, recurrent)
                forms += [form for form in rows if known in form.names]
            yield from ((form, level) for form in forms)
            if forms:
                return
        layer = self._layer(reader)
        if self._other or len(shape) < 1 or max(shape) < 2 or _STEPS.search(name):
            return
        own = [n for n in self._shapes if _parent(n) == layer]
        single = [f for n in own for f in forms_of(n, self._shapes[n], shape, turned=turned)]
        yield from ((form, "shape") for form in single)
        if not layer:  # whatever stands in no module would be tried
            return
        more: list[Form] = []
        if recurrent:
            more += recurrent_forms(layer, self._shapes, shape, recurrent)
        more += [form for n in own for form in split_forms(n, self._shapes[n], shape)]
        for module in (layer, _parent(layer)):
            more += packed_forms(module, self._shapes, shape)
        yield from ((form, "numbers") for form in more)

    def _named(self, name: str) -> tuple[str, _Level | None]:
        """The parameter that a name is of, and how sure that is."""
        for known in (name, self._moved(name)):
            if known in self._shapes:
                if _NUMBERED.match(name) and self._other:
                    return known, "numbers"
                return known, "numbers" if known in self._written else "name"
        if _STEPS.search(name):
            return "", None
        stem = _OURS.sub("", name)
        for known in (stem, self._moved(stem)):
            if stem != name and known in self._shapes:
                return known, "numbers" if _NUMBERED.match(stem) and self._other else "name"
        for end in (match.start() for match in reversed([*re.finditer(r"[._/:]", name)])):
            for known in (name[:end], self._moved(name[:end])):
                if known in self._shapes:
                    return known, "shape"
        return "", None

    def _layer(self, node: ir.Node) -> str:
        """The module with parameters that a node stands in; fusions of nodes add a step."""
        layer = self._scope_move(layer_of(node))
        outer = _parent(layer)
        return outer if layer not in self._parents and outer in self._parents else layer

    def _moved(self, name: str) -> str:
        module, _, last = name.rpartition(".")
        moved = self._move(module)
        return f"{moved}.{last}" if moved else last if moved == module else ""

    def _expected(self, form: Form) -> torch.Tensor:
        return form.view(*(_as_tensor(self._tensors[name]) for name in form.names))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _parameters(setting: Setting) -> Mapping[str, Any]:
    """Parameters, buffers and constants of the reference by name; the module's own come last."""
    if setting.reference.model is not None:
        values = setting.reference.model.graph.initializers.items()
        return {
            str(name): value.const_value
            for name, value in values
            if value.const_value is not None and value.dtype != ir.DataType.STRING
        }
    tensors: dict[str, Any] = {}
    if (program := setting.reference.program) is not None:
        tensors |= {**program.state_dict, **program.constants}
    if setting.module is not None:
        tensors |= setting.module.named_parameters(remove_duplicate=False)
        tensors |= setting.module.named_buffers(remove_duplicate=False)
    return {name: tensor for name, tensor in tensors.items() if _is_plain(tensor)}


def _is_plain(tensor: Any) -> bool:
    plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
    return plain and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)


def _written_buffers(setting: Setting) -> set[str]:
    """Buffers that the model writes: after a call they are others than in the file."""
    program = setting.reference.program
    return set() if program is None else {*program.graph_signature.buffers_to_mutate.values()}


def _as_tensor(tensor: Any) -> torch.Tensor:
    return tensor.detach() if isinstance(tensor, torch.Tensor) else tensor_of(tensor.numpy())


def _is_float(dtype: ir.DataType, stored: Stored | None) -> bool:
    return stored is not None or dtype.is_floating_point()


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for graph in subgraphs(node):
        for inner in graph:
            yield from _with_inner(inner)


def _reader(node: ir.Node) -> ir.Node:
    """The first node behind one that computes with an initializer."""
    while node.op_type in _HANDED_ON and len(node.outputs[0].uses()) == 1:
        node = node.outputs[0].uses()[0].node
    return node


def _wants_transposed(node: ir.Node, name: str) -> bool:
    """Whether a reader of a linear layer's weight has its axes swapped."""
    turned = node.attributes.get("transB") if node.op_type == "Gemm" else None
    is_gemm = node.op_type == "Gemm" and not (turned is not None and turned.as_int())
    return node.op_type == "MatMul" or is_gemm or name.endswith(".T")


def _is_wrong_after(node: ir.Node, wrong: Mapping[str, bool]) -> bool:
    """Whether any of the first compared values that a node's results go into is wrong."""
    waiting, seen = list(node.outputs), set(node.outputs)
    while waiting:
        value = waiting.pop()
        if str(value.name) in wrong:
            if wrong[str(value.name)]:
                return True
            continue
        for use in value.uses():
            more = [v for v in use.node.outputs if v not in seen]
            seen.update(more)
            waiting += more
    return False


def _is_wrong_before(node: ir.Node, wrong: Mapping[str, bool]) -> bool:
    """Whether any of the last compared values that a node reads is wrong."""
    waiting, seen = [node], {node}
    while waiting:
        for value in reads(waiting.pop()):
            if wrong.get(str(value.name)):
                return True
            producer = value.producer()
            if str(value.name) not in wrong and producer is not None and producer not in seen:
                seen.add(producer)
                waiting.append(producer)
    return False
