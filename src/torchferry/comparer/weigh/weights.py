"""Initializers beside the parameters they stand for: a wrong weight is named before any node.

An initializer is aligned by its name, or by the module that its reader stands in, where only one
parameter of that module has its shape. Others are not aligned. Weights may be stored transposed,
packed with others, split, quantized, or rounded; scaled by what an optimizer put into them, they
are no fault. Only where a name says so is a weight reported without further evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import torch

from torchferry.comparer.align.parameters import Level, Parameters, module_of
from torchferry.comparer.comparison import Row, WeightDifference
from torchferry.comparer.run.piece import reads
from torchferry.comparer.setting import Setting
from torchferry.comparer.weigh.dequantize import Stored, dequantized
from torchferry.comparer.weigh.weight_error import Error, channel_scales, measure
from torchferry.comparer.weigh.weight_form import Form
from torchferry.graph.reference import is_unbound
from torchferry.graph.subgraph import subgraphs
from torchferry.values.dtype import tensor_of

__all__ = ["Weights"]

_PRODUCT = re.compile(r"(Fused|QLinear|Nhwc)?(Conv|ConvTranspose|Gemm|MatMul)(Integer|NBits)?$")
_HANDED_ON = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Transpose", "Unsqueeze")
_FOLDED = 1e-4  # what the arithmetic of a normalization may add to rounding, as a share
_ROUGH = 0.05  # the same, of scales that are read off quantized numbers
_SAMPLE = 1000  # elements that show whether a weight has numbers of its own


@dataclass(frozen=True)
class _Match:
    """An initializer beside what it may stand for.

    Attributes:
        form: the parameters, and how they are stored.
        level: how sure that is.
        error: the difference.
    """

    form: Form
    level: Level
    error: Error


@dataclass(frozen=True)
class _Suspect:
    """A weight that seems to differ.

    Attributes:
        difference: from the parameter that it seems to stand for.
        level: how sure that is.
        reader: the node that computes with it.
    """

    difference: WeightDifference
    level: Level
    reader: ir.Node


class Weights:
    """Looks at the initializers of a model as its nodes are walked, each once."""

    def __init__(
        self, setting: Setting, atol: float | None = None, rtol: float | None = None
    ) -> None:
        """Collect the parameters of the reference.

        Args:
            setting: what is compared.
            atol: what a weight may differ by, besides rounding.
            rtol: the same, as a share of each element.
        """
        self._known = setting.onnx.graph.initializers
        self._atol, self._rtol = atol or 0.0, rtol or 0.0
        self._parameters = Parameters(setting)
        self._seen: set[ir.Value] = set()
        self._scaled: set[str] = set()
        self._suspects: list[_Suspect] = []

    def look_at(self, nodes: Iterable[ir.Node]) -> None:
        """Compare the initializers that nodes read, those inside their subgraphs too."""
        if not self._parameters.shapes:
            return
        for node in (inner for outer in nodes for inner in _with_inner(outer)):
            for value in node.inputs:
                if value is not None and value.is_initializer() and value not in self._seen:
                    self._seen.add(value)
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
        vector = len(self._parameters.shapes[name]) < 2
        if vector and module_of(name) in self._scaled:
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
        if tensor is None or is_unbound(tensor) or tensor.dtype == ir.DataType.STRING:
            return
        stored = dequantized(value, node, self._known)
        held: Any = tensor.numpy() if stored is None else stored
        shape = tuple((held.values if isinstance(held, Stored) else held).shape)
        floating = stored is not None or tensor.dtype.is_floating_point()
        reader = _reader(node)
        matches: list[_Match] = []
        for form, level in self._parameters.candidates(str(value.name), shape, node, reader):
            expected = self._parameters.view(form)
            if expected.is_floating_point() != floating or tuple(expected.shape) != shape:
                continue
            error = self._measured(expected, held)
            if error is None:
                return
            matches.append(_Match(form, level, error))
        match = _likeliest(matches)
        if match is not None and match.level == "numbers" and self._is_known(match):
            match = replace(match, level="name")
        if match is not None and _PRODUCT.match(reader.op_type):
            match = self._unscaled(match, held)
        if match is not None:
            for name, index, error in self._placed(match, held):
                difference = WeightDifference(
                    name, str(value.name), index, error.expected, error.got, error.abs,
                    error.wrong, self._parameters.shapes[name].numel(), str(reader.name or ""),
                )  # fmt: skip
                self._suspects.append(_Suspect(difference, match.level, reader))

    def _is_known(self, match: _Match) -> bool:
        """Whether nearly all numbers are the parameter's, and no others', as zeros would be."""
        sample = self._parameters.view(match.form).reshape(-1)[:_SAMPLE]
        own = 2 * len(set(sample.tolist())) > sample.numel() >= 8
        return own and 10 * match.error.wrong <= match.error.size

    def _measured(self, expected: torch.Tensor, held: Any, rtol: float = 0.0) -> Error | None:
        return measure(expected, held, atol=self._atol, rtol=max(rtol, self._rtol))

    def _unscaled(self, match: _Match, held: Any) -> _Match | None:
        """The match without what scales the channels of a weight; ``None`` if nothing is left.

        Unless it is a normalization of the model that scales them, it is not known what does. Of
        channels that it should scale otherwise, the normalization is wrong and not the weight.
        """
        if 2 * match.error.wrong <= match.error.size:
            return match
        expected = self._parameters.view(match.form).cpu()
        scales = channel_scales(expected, held)
        if scales is None:
            return match
        self._scaled.add(module_of(match.form.names[0]))
        factor = self._parameters.normalization(scales)
        if factor is None:
            return replace(match, level="shape")
        rough = _ROUGH if isinstance(held, Stored) else _FOLDED
        if self._measured(expected * scales, held, rough) is None:
            return None
        error = self._measured(expected * factor, held, _FOLDED)
        if error is None or 2 * error.wrong > error.size:
            return None if error is None else replace(match, level="shape")
        return _Match(match.form, "name" if match.level == "name" else "numbers", error)

    def _placed(self, match: _Match, held: Any) -> Iterator[tuple[str, tuple[int, ...], Error]]:
        """The largest difference of each parameter that an initializer holds, and its index."""
        form, error = match.form, match.error
        shapes = [self._parameters.shapes[name] for name in form.names]
        if len(shapes) == 1:
            yield *form.place(shapes, error.position), error
            return
        expected = self._parameters.view(form)
        got = held.values if isinstance(held, Stored) else tensor_of(held)
        for number in range(len(shapes)):
            parts = [torch.full(shape, i == number) for i, shape in enumerate(shapes)]
            one = self._measured(torch.where(form.view(*parts), expected, got), held)
            if one is not None:
                yield *form.place(shapes, one.position), one


def _likeliest(matches: Sequence[_Match]) -> _Match | None:
    """The match of an initializer, with how sure it is; ``None`` if it may be any, or none."""
    if not matches:
        return None
    match = min(matches, key=lambda one: one.error.wrong)
    match = match if match.error.similar else matches[0]
    if match.level == "name":
        return match
    if match.error.similar:
        return replace(match, level="numbers")
    names = {one.form.names for one in matches}
    return None if len(names) > 1 or match.level == "numbers" else match


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for graph in subgraphs(node):
        for inner in graph:
            yield from _with_inner(inner)


def _reader(node: ir.Node) -> ir.Node:
    """The first node from here on that computes with an initializer."""
    while node.op_type in _HANDED_ON and len(node.outputs[0].uses()) == 1:
        node = next(iter(node.outputs[0].uses())).node
    return node


def _is_wrong_after(node: ir.Node, wrong: Mapping[str, bool]) -> bool:
    """Whether any of the first compared values that a node's results go into is wrong."""
    waiting, seen = list(node.outputs), set(node.outputs)
    while waiting:
        value = waiting.pop()
        if wrong.get(str(value.name)):
            return True
        if str(value.name) not in wrong:
            more = {v: None for use in value.uses() for v in use.node.outputs if v not in seen}
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
