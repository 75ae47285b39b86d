"""ExportedProgram → ``onnx_ir.Model``: the face of the room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.converter import signature, torch_onnx
from torchferry.converter.functions import extract_functions
from torchferry.converter.program import mutation
from torchferry.converter.program.written_view import Relation, find_written_views
from torchferry.converter.translate import translate
from torchferry.converter.write import dimension
from torchferry.converter.write.kernel import is_floating
from torchferry.dims import Condition, Size
from torchferry.errors import UsageError
from torchferry.graph.outline import STATE_KEY
from torchferry.graph.runtime import installed, newest_opset, store_least
from torchferry.observer.conditions import conditions_of, missing_guards
from torchferry.values.flatten import Path
from torchferry.values.reliance import Reliance
from torchferry.values.source_line import user_line
from torchferry.values.step import write_state

__all__ = ["OPSETS", "TORCH_OPSETS", "check_opset", "convert", "convert_with_torch"]

DEFAULT_OPSET = 20  # IR 10: loads in every onnxruntime since 1.17 and in optimum
# From what onnxruntime has read for years to the newest that the installed onnx and it know.
OPSETS = range(18, min(onnx.defs.onnx_opset_version(), newest_opset(installed())) + 1)
TORCH_OPSETS = range(18, 24)  # what torch.onnx 2.13 writes


_KNOWN = ("relies", "unproven", "state")  # what a `Capture` says of its program


class Capture(Protocol):
    """What `torchferry.capturer` knows of a program that it made."""

    @property
    def program(self) -> ExportedProgram:
        """The program."""

    @property
    def lines(self) -> Mapping[str, str]:
        """The user's line that decided each guard."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Guards that torch leaves out, which nobody has tried."""

    @property
    def relies(self) -> tuple[Reliance, ...]:
        """What the model's code asks of its arguments besides types and sizes."""

    @property
    def unproven(self) -> str:
        """Why it is wrong for the call it was captured with."""

    @property
    def state(self) -> Mapping[str, Any]:
        """The initial value of each piece of lifted state."""


def convert(
    program: ExportedProgram | Capture,
    *,
    opset: int | None = None,
    dims: Mapping[tuple[Path, int], Size] | None = None,
    defaults: Mapping[str, Any] | None = None,
    functions: Iterable[type[torch.nn.Module] | str] = (),
    as_stored: bool = False,
) -> ir.Model:
    """Translate an exported program to ONNX.

    Inputs and outputs get the names Hugging Face's tools expect (``past_key_values.0.key``,
    ``present.0.key``), dynamic dimensions the names in ``dims`` or, without it, conventional ones.
    Weights are views of the program's tensors, never copies. Each node's metadata says which FX
    node, module and source line it came from, and the model's metadata how to rebuild the nested
    outputs, and which tests on sizes and integers the program relies on: a call checks them.

    Args:
        program: what ``torch.export.export`` or `capture` gave.
        opset: ONNX operator set, 18 or newer; 20 when ``None``.
        dims: the size of input axes by ``(path, axis)``.
        defaults: forward's defaults. An argument that became a constant and is not the default
            must be given, with the same value, whenever the model is called.
        functions: classes of modules (or their names) that become local ONNX functions; modules
            that compute the same share one.
        as_stored: keep every weight as it lies in memory, so that the file it is mapped from can
            serve the model; a transposed one costs a Transpose node.

    Raises:
        UsageError: the opset is out of range, there is no program, or no module of a class.
        MissingLowering: operators have no ONNX form; all of them are named.
        ConversionError: an operator cannot be written with what it is given, or the program
            writes to its inputs or buffers, or returns nothing that it computes.
    """
    opset = check_opset(opset, OPSETS)
    lines, doubts = getattr(program, "lines", None), getattr(program, "doubts", ())
    known = {name: getattr(program, name) for name in _KNOWN if hasattr(program, name)}
    program = getattr(program, "program", program)
    if not isinstance(program, ExportedProgram):
        raise UsageError(
            f"cannot convert a {type(program).__name__}: give an ExportedProgram, or what "
            "torchferry.capture returns"
        )
    mutation.refuse_mutations(program)
    names = dimension.DimensionNames(program, dims or {})
    model = translate(program, opset, names, as_stored=as_stored)
    if chosen := tuple(functions):
        extract_functions(model, chosen)
    conditions = conditions_of(program, names, lines, doubts)
    return _finished(model, program, names, defaults, conditions=conditions, **known)


_SQUEEZING = {torch.ops.aten.cov.default, torch.ops.aten.corrcoef.default}
_LOSE_NAN = {"GRU", "LSTM", "MaxPool", "RNN"}
_NEVER_EMPTY = {  # what onnxruntime, up to 1.32 at least, computes of nothing ends the process
    torch.ops.aten.group_norm.default,
    torch.ops.aten.native_group_norm.default,
    torch.ops.aten.instance_norm.default,
}


def _of_writes(program: ExportedProgram, names: dimension.DimensionNames) -> Iterator[Condition]:
    """Sizes at which a write in place would go to other memory than at the exported ones."""
    # Where the memory is read no more it makes no difference, which only a run tells.
    for view in (one for one in find_written_views(program) if one.relations):
        sizes: list[str] = []
        tests = [_written(one, names, sizes) for one in view.relations]
        line = user_line(view.node.stack_trace) or ""
        yield Condition(" or ".join(tests), tuple(sizes), line, choice=True)


def _written(relation: Relation, names: dimension.DimensionNames, sizes: list[str]) -> str:
    """A relation as a test of ``n0``, ``n1`` ...; these stand for ``sizes``, which grow."""
    terms = []
    for side in (relation.left, relation.right):
        name = side if side.isdecimal() else names(side)
        if not name.isdecimal() and name not in sizes:
            sizes.append(name)
        terms.append(name if name.isdecimal() else f"n{sizes.index(name)}")
    return f"{terms[0]} {'==' if relation.equal else '!='} {terms[1]}"


def _of_ranks(program: ExportedProgram, names: dimension.DimensionNames) -> Iterator[Condition]:
    """Sizes of 1 at which an operator gives up an axis, which no ONNX operator can."""
    for node in program.graph.nodes:
        rows = node.args[0].meta["val"].shape[:-1] if node.target in _SQUEEZING else ()
        for size in rows:
            if isinstance(size, torch.SymInt):
                line = user_line(node.stack_trace) or ""
                yield Condition("n0 != 1", (names(str(size)),), line)


def _of_groups(program: ExportedProgram, names: dimension.DimensionNames) -> Iterator[Condition]:
    """Sizes of 0 of which onnxruntime normalizes nothing."""
    for node in program.graph.nodes:
        shape = node.args[0].meta["val"].shape if node.target in _NEVER_EMPTY else ()
        for size in (names(str(size)) for size in shape if isinstance(size, torch.SymInt)):
            if not dimension.is_data_dependent(size):  # which no call tells beforehand
                line = "onnxruntime's normalization of groups takes nothing that is empty"
                yield Condition("n0 != 0", (size,), line)


def _of_kernels(model: ir.Model) -> Iterator[Condition]:
    """Sizes at which onnxruntime, up to 1.32 at least, ends the process that runs it."""
    found: dict[Condition, None] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        value = node.inputs[0] if node.op_type in ("LSTM", "GRU") else None
        for size in () if value is None or value.shape is None else value.shape.dims[:2]:
            # What depends on data no call tells beforehand.
            if (
                isinstance(size, ir.SymbolicDim)
                and size.value
                and not dimension.is_data_dependent(size.value)
            ):
                line = f"onnxruntime's {node.op_type} takes no empty batch or sequence"
                found.setdefault(Condition("n0 != 0", (size.value,), line))
    yield from found


def _of_numbers(model: ir.Model) -> Sequence[Reliance]:
    """That arguments hold no NaN, where onnxruntime, up to 1.32 at least, may lose one."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    values = (node.inputs[0] for node in nodes if node.op_type in _LOSE_NAN)
    return ("numbers",) if any(one is not None and is_floating(one) for one in values) else ()


def convert_with_torch(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    dynamic_shapes: Any,
    opset: int | None = None,
    dims: Mapping[tuple[Path, int], Size] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[ir.Model, ExportedProgram]:
    """What ``torch.onnx.export`` makes of a module, under our names.

    Args:
        model: the module; torch.onnx captures it with strategies of its own.
        args: positional arguments.
        kwargs: named arguments.
        dynamic_shapes: as for ``torch.export.export``.
        opset: see `convert`.
        dims: see `convert`.
        defaults: see `convert`.

    Raises:
        UsageError: the opset is out of range.
        ConversionError: torch.onnx failed, or the module writes to its inputs or buffers.
    """
    translated, program, captured = torch_onnx.export_module(
        model, args, kwargs, dynamic_shapes, check_opset(opset, TORCH_OPSETS)
    )
    mutation.refuse_mutations(program)
    names = dimension.DimensionNames(program, dims or {})
    dimension.rename_dimensions(translated, names)
    doubts = missing_guards(captured)
    guarded = dimension.DimensionNames(captured, dims or {})
    conditions = conditions_of(captured, guarded, doubts=doubts)
    return _finished(translated, program, names, defaults, conditions=conditions), program


def _finished(
    model: ir.Model,
    program: ExportedProgram,
    names: dimension.DimensionNames,
    defaults: Mapping[str, Any] | None,
    *,
    conditions: Iterable[Condition],
    state: Mapping[str, Any] | None = None,
    relies: Sequence[Reliance] = (),
    **known: Any,
) -> ir.Model:
    conditions = [
        *conditions,
        *_of_groups(program, names),
        *_of_kernels(model),
        *_of_writes(program, names),
        *_of_ranks(program, names),
    ]
    read = signature.read_signature(program, defaults, conditions, names)
    relies = (*relies, *_of_numbers(model))
    signature.write_signature(model, replace(read, relies=relies, **known))
    if state:
        model.metadata_props[STATE_KEY] = write_state(state)
    store_least(model)
    return model


def check_opset(opset: int | None, known: range = OPSETS) -> int:
    """The opset, or the default for ``None``.

    Raises:
        UsageError: it is not among the known ones.
    """
    opset = DEFAULT_OPSET if opset is None else opset
    if opset not in known:
        raise UsageError(
            f"cannot write opset {opset}: choose one from {known.start} to {known.stop - 1}"
        )
    return opset
