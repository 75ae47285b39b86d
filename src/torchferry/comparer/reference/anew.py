"""Twins of an ONNX file: what the exporter that wrote it makes of the reference today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.capturer import capture
from torchferry.comparer.align.align import align_modules, align_program
from torchferry.comparer.align.match import match_numbers
from torchferry.comparer.align.provenance import by_torch_script, fx_said
from torchferry.comparer.setting import Setting
from torchferry.converter import convert
from torchferry.converter.torch_onnx import Flat, export_program, export_script
from torchferry.dims import parse_size
from torchferry.errors import CaptureError, ConversionError, UsageError
from torchferry.observer.observation import Call, Observation
from torchferry.observer.tree import leaves_of
from torchferry.values.clone import clone

__all__ = ["OURS", "Twin", "twins"]

OURS = "torchferry"
"""The producer of our files."""


@dataclass(frozen=True)
class Twin:
    """A model that should hold the same.

    Attributes:
        model: it.
        keys: the reference's name of each of its values that has one.
        feeds: its inputs.
    """

    model: ir.Model
    keys: Mapping[str, str]
    feeds: Mapping[str, torch.Tensor]


def twins(setting: Setting) -> Iterator[Twin]:
    """Models that may be twins of the one that is compared, each made when it is asked for.

    An ONNX reference is one. Of a program there is what the file's exporter makes of it, and of a
    module what it makes of that: as it is traced, or captured with the sizes that are dynamic in
    the file. What cannot be exported is left out.
    """
    reference = setting.reference
    if reference.model is not None:
        names = [str(value.name) for value in reference.model.graph.inputs]
        names += [origin.key for origin in reference.origins.values()]
        made = {str(v.name) for node in reference.model.graph for v in node.outputs}
        keys = {name: name for name in names if name in made}
        yield Twin(reference.model, keys, setting.feeds)
        return
    traced = by_torch_script(setting.onnx.graph)
    for way in (_traced, _of_program) if traced else (_of_program, _of_module):
        try:
            made_anew = way(setting)
        except (CaptureError, ConversionError, UsageError):
            continue
        if made_anew is not None:
            yield _aligned(setting, *made_anew)


_Exported = tuple[ir.Model, Mapping[str, torch.Tensor]]


def _aligned(setting: Setting, fresh: ir.Model, feeds: Mapping[str, torch.Tensor]) -> Twin:
    reference = setting.reference
    if reference.plain is None:
        paths = {origin.key for origin in reference.origins.values()}
        found = align_modules(fresh.graph, paths)
    else:
        found = align_program(reference.plain, fresh.graph)
        if by_torch_script(fresh.graph):
            found = match_numbers(replace(reference, origins=found), fresh, feeds)
    return Twin(fresh, {name: origin.key for name, origin in found.items()}, feeds)


def _of_program(setting: Setting) -> _Exported | None:
    """What the exporter makes of the program that is compared with."""
    program = setting.reference.program
    return None if program is None else _exported(setting, program)


def _of_module(setting: Setting) -> _Exported | None:
    """What it makes of the module, with the sizes that are dynamic in the file."""
    if setting.module is None:
        return None
    return _exported(
        setting, capture(setting.module, _seen(setting, setting.module), settle=False).program
    )


def _traced(setting: Setting) -> _Exported | None:
    """What the TorchScript exporter makes of the module."""
    if setting.module is None:
        return None
    tensors = Flat(setting.module, setting.call).tensors
    feeds = {f"input_{index}": tensor for index, tensor in enumerate(tensors)}
    axes = {
        name: {axis: f"{name}_{axis}" for axis in _dynamic(setting, tensor)}
        for name, tensor in feeds.items()
    }
    flat = Flat(setting.module, clone(setting.call))  # what traces it may write to caches
    opset = setting.onnx.opset_imports.get("")
    return export_script(flat, [*feeds], axes, opset), feeds


def _exported(setting: Setting, program: ExportedProgram) -> _Exported:
    model = setting.onnx
    opset = model.opset_imports.get("")
    if model.producer_name != OURS and any(fx_said(node)[0] for node in model.graph):
        # What torch.onnx optimizes has its constants as initializers.
        optimize = not any(node.op_type == "Constant" for node in model.graph)
        fresh = export_program(program, opset, optimize=optimize)
    else:
        fresh = convert(program, opset=opset)
    return fresh, setting.feeds_of(fresh)


def _seen(setting: Setting, module: torch.nn.Module) -> Observation:
    """The call, with the sizes that are dynamic in the file by the names that they have there."""
    seen = Observation.from_inputs(module, [setting.call])
    leaves = leaves_of(*seen.normalized(Call(*setting.call)))
    named = {
        (argument.name, axis): parse_size(text)
        for argument in seen.arguments
        for axis, text in _dynamic(setting, leaves.get(argument.path)).items()
        if text.strip()
    }
    return replace(seen, named=named)


def _dynamic(setting: Setting, tensor: object) -> dict[int, str]:
    """The dynamic axes of the input that a tensor is given to, by their names in the file."""
    name = next((name for name, one in setting.feeds.items() if one is tensor), None)
    value = next((value for value in setting.onnx.graph.inputs if value.name == name), None)
    sizes = () if value is None or value.shape is None else tuple(value.shape)
    return {i: size.value or "" for i, size in enumerate(sizes) if not isinstance(size, int)}
