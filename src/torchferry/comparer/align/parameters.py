"""The parameters of a reference, and which of them an initializer may stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import onnx_ir as ir
import torch

from torchferry.comparer.align.provenance import all_scopes, layer_of
from torchferry.comparer.align.scopes import move_between
from torchferry.comparer.setting import Setting
from torchferry.comparer.weigh.weight_form import (
    Form,
    forms_of,
    packed_forms,
    recurrent_forms,
    split_forms,
)
from torchferry.converter.program.subclass import parts_of
from torchferry.values.dtype import tensor_of

__all__ = ["Level", "Parameters", "module_of"]

Level = Literal["name", "numbers", "shape"]
"""How sure it is which parameter an initializer stands for: its name says so; the module does if
the numbers are much the same; only the module and the shape do."""

_OTHER_FORM = re.compile(r"\.(T|LSTM|GRU|RNN)$|_quantized$|_Q[48]$")  # the same weight
_STEPS = re.compile(r"_(scale|scales|zero_point|zp)s?$")
_NUMBERED = re.compile(r".*(^|_|::)\d+(_output_\d+)?$")  # may be of other things in another file
_RECURRENT = ("LSTM", "GRU", "RNN")


class Parameters:
    """Parameters, buffers and constants of a reference by name; those of a dump are not known.

    Attributes:
        shapes: their sizes, in the order of the model.
    """

    def __init__(self, setting: Setting) -> None:
        """Collect the parameters of what is compared."""
        self._tensors = _collect(setting)
        self._is_onnx = setting.reference.model is not None
        self.shapes = {
            name: torch.Size(map(int, tensor.shape)) for name, tensor in self._tensors.items()
        }
        graph = setting.onnx.graph
        self._modules = {module_of(name) for name in self.shapes}
        names = {module_of(str(name)) for name in graph.initializers if "." in str(name)}
        self._move = move_between(names, self._modules)
        self._scope_move = move_between(all_scopes(graph), self._modules)

    def tensor(self, name: str) -> torch.Tensor:
        """A parameter as a tensor."""
        tensor = self._tensors[name]
        return tensor.detach() if isinstance(tensor, torch.Tensor) else tensor_of(tensor.numpy())

    def view(self, form: Form) -> torch.Tensor:
        """The tensor that an initializer of a form should hold."""
        return form.view(*(self.tensor(name) for name in form.names))

    def candidates(
        self, name: str, shape: tuple[int, ...], node: ir.Node, reader: ir.Node
    ) -> Iterator[tuple[Form, Level]]:
        """Find the forms that an initializer may have, the likeliest first.

        Args:
            name: of the initializer.
            shape: its sizes.
            node: that reads it.
            reader: the first node behind that computes with it.
        """
        known, level = self._named(name)
        turned = _wants_transposed(node, name)
        recurrent = reader.op_type.removeprefix("DynamicQuantize")
        recurrent = recurrent if recurrent in _RECURRENT else ""
        if known:
            forms = [*forms_of(known, self.shapes[known], shape, turned=turned)]
            if recurrent:
                rows = recurrent_forms(module_of(known), self.shapes, shape, recurrent)
                forms += [form for form in rows if known in form.names]
            yield from ((form, level) for form in forms)
            if forms:
                return
        if self._is_onnx or max(shape, default=0) < 2 or _STEPS.search(name):
            return
        layer = self._layer(reader)
        own = [n for n in self.shapes if module_of(n) == layer]
        single = [f for n in own for f in forms_of(n, self.shapes[n], shape, turned=turned)]
        yield from ((form, "shape") for form in single)
        if not layer:  # of the model itself: all that stands in no module would be tried
            return
        more = [*recurrent_forms(layer, self.shapes, shape, recurrent)] if recurrent else []
        more += [form for n in own for form in split_forms(n, self.shapes[n], shape)]
        for module in (layer, module_of(layer)):
            more += packed_forms(module, self.shapes, shape)
        yield from ((form, "numbers") for form in more)

    def _named(self, name: str) -> tuple[str, Level]:
        """The parameter that a name is of, ``""`` if none, and how sure that is."""
        stem = _OTHER_FORM.sub("", name)
        for text in (name, stem):
            numbered = self._is_onnx and _NUMBERED.match(text)
            for known in (text, self._moved(text)):
                if known in self.shapes:
                    return known, "numbers" if numbered else "name"
        if not _STEPS.search(name):
            for joint in reversed([*re.finditer(r"[._/:]", name)]):
                for known in (name[: joint.start()], self._moved(name[: joint.start()])):
                    if known in self.shapes:
                        return known, "shape"
        return "", "shape"

    def _moved(self, name: str) -> str:
        module, _, last = name.rpartition(".")
        moved = self._move(module)
        return f"{moved}.{last}" if moved else last

    def _layer(self, node: ir.Node) -> str:
        """The module with parameters that a node stands in; fusions of nodes add a step."""
        layer = self._scope_move(layer_of(node))
        holds = any(f"{module}.".startswith(f"{layer}.") for module in self._modules)
        return layer if holds else module_of(layer)

    def normalization(self, scales: torch.Tensor, near: float = 0.02) -> torch.Tensor | None:
        """Find the batch normalization that scales most channels so.

        Args:
            scales: of the channels.
            near: how far they may be off, as a share: they may be read off quantized numbers.

        Returns:
            Its factors, in the shape of the scales.
        """
        for name, shape in self.shapes.items():
            module, _, kind = name.rpartition(".")
            if kind != "running_var" or shape.numel() != scales.numel():
                continue
            weight = f"{module}.weight" if module else "weight"
            gain = self.tensor(weight).cpu().double() if weight in self.shapes else 1.0
            for eps in (1e-5, 1e-3, 1e-6, 1e-4):  # PyTorch's default, and those of model zoos
                deviation = (self.tensor(name).cpu().double() + eps).sqrt()
                factor = (gain / deviation).reshape(scales.shape)
                if 2 * int(torch.isclose(scales, factor, rtol=near).sum()) >= scales.numel():
                    return factor
        return None


def module_of(name: str) -> str:
    """The path of the module that a parameter is of."""
    return name.rpartition(".")[0]


def _collect(setting: Setting) -> Mapping[str, Any]:
    """Tensors by name; the module's own replace those of a program that was captured earlier."""
    if setting.reference.model is not None:
        values = setting.reference.model.graph.initializers.items()
        return {
            str(name): value.const_value
            for name, value in values
            if value.const_value is not None and value.const_value.dtype != ir.DataType.STRING
        }
    tensors: dict[str, Any] = {}
    if (program := setting.reference.program) is not None:
        tensors |= {**program.state_dict, **program.constants}
    if setting.module is not None:
        tensors |= setting.module.named_parameters(remove_duplicate=False)
        tensors |= setting.module.named_buffers(remove_duplicate=False)
    parts = (part for name, tensor in tensors.items() for part in parts_of(tensor, name))
    return {name: tensor for name, tensor in parts if _is_plain(tensor)}


def _is_plain(tensor: Any) -> bool:
    plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
    return plain and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)


def _wants_transposed(node: ir.Node, name: str) -> bool:
    """Whether a reader of a linear layer's weight has its axes swapped."""
    turned = node.attributes.get("transB") if node.op_type == "Gemm" else None
    is_gemm = node.op_type == "Gemm" and not (turned is not None and turned.as_int())
    return node.op_type == "MatMul" or is_gemm or name.endswith(".T")
