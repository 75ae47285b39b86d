"""The one seam through which torch.onnx translates what we have no lowerings for yet."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.utils import _pytree as pytree

from torchferry.converter.provenance import user_line
from torchferry.errors import ConversionError

__all__ = ["export_module", "translate"]


def translate(program: ExportedProgram, opset: int) -> ir.Model:
    """The program's graph in ONNX, unoptimized, with torch.onnx's names.

    Raises:
        ConversionError: names the operator, the module and the user's line.
    """
    with _quiet(), _without_constant_outputs(program):
        try:
            result = torch.onnx.export(
                program, (), dynamo=True, optimize=False, opset_version=opset, verbose=False
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise _explain(program, error) from error
    if result is None:
        raise ConversionError("torch.onnx returned no model")
    return result.model


def export_module(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    opset: int,
) -> tuple[ir.Model, ExportedProgram]:
    """``torch.onnx.export`` as it stands: its capture, its translation.

    Raises:
        ConversionError: it failed; the message is the first line of its own.
    """
    with _quiet(), torch.no_grad():
        try:
            result = torch.onnx.export(
                model,
                args,
                kwargs=dict(kwargs),
                dynamic_shapes=dynamic_shapes,
                dynamo=True,
                optimize=False,
                opset_version=opset,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ConversionError(f"torch.onnx.export failed: {_root(error)}") from error
    if result is None or result.exported_program is None:
        raise ConversionError("torch.onnx returned no model")
    return result.model, result.exported_program


def _root(error: BaseException) -> str:
    """What the first exception of the chain said, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def _explain(program: ExportedProgram, error: Exception) -> ConversionError:
    """The reason in one sentence, instead of a page of torch's."""
    text = str(error)
    missing = re.search(
        r"No ONNX function found for <OpOverload\(op='(.+?)', overload='(.+?)'", text
    )
    name = re.search(r"translating node %(\w+)", text)
    node = next((n for n in program.graph.nodes if name and n.name == name[1]), None)
    line = user_line(node.stack_trace) if node is not None else None
    module = _module_of(node) if node is not None else None
    reason = f"{missing[1]}.{missing[2]} has no ONNX translation" if missing else _root(error)
    places = [f"node {name[1]}" if name else "", f"in {module}" if module else ""]
    where = "".join(f", {place}" for place in [*places, f"at {line}" if line else ""] if place)
    return ConversionError(
        f"cannot convert to ONNX: {reason}{where}. Rewrite that line with operators that ONNX has",
        node=name[1] if name else None,
        source_line=line,
    )


def _module_of(node: torch.fx.Node) -> str | None:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return None
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else kind.__qualname__
    return f"{path or 'the model'} ({kind.rsplit('.', 1)[-1]})"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what torch.onnx says about itself (operators of packages not installed)."""
    logger = logging.getLogger("torch.onnx")
    disabled = logger.disabled
    children = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith("torch.onnx._internal")
    ]
    levels = [child.level for child in children]
    for child in children:
        child.setLevel(logging.ERROR)
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled
        for child, level in zip(children, levels, strict=True):
            child.setLevel(level)


@contextmanager
def _without_constant_outputs(program: ExportedProgram) -> Iterator[None]:
    """Leave None and numbers among the outputs out of the graph: the signature has them."""
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    kept = [not isinstance(spec.arg, ConstantArgument) for spec in specs]
    if all(kept):
        yield
        return
    root = program.module_call_graph[0].signature
    before = output.args, list(specs), root.out_spec
    output.args = (tuple(a for a, keep in zip(before[0][0], kept, strict=True) if keep),)
    specs[:] = [spec for spec, keep in zip(before[1], kept, strict=True) if keep]
    # The nesting must count as many leaves as there are outputs.
    root.out_spec = pytree.tree_structure([0] * sum(kept))
    try:
        yield
    finally:
        output.args, specs[:], root.out_spec = before
