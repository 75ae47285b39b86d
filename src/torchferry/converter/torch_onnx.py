"""The one seam through which torch.onnx translates what we have no lowerings for yet."""

from __future__ import annotations

import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
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
    with _quiet(), _flat(program):
        try:
            result = torch.onnx.export(
                program, (), dynamo=True, optimize=False, opset_version=opset, verbose=False
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise _explain(error) from error
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


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__


def _root(error: BaseException) -> str:
    """What the first exception of the chain said, in one line."""
    *_, root = _chain(error)
    lines = str(root).strip().splitlines() or [""]
    return f"{type(root).__name__}: {lines[0][:300]}"


def _explain(error: Exception) -> ConversionError:
    """The reason in one sentence, instead of a page of torch's."""
    missing = re.search(
        r"No ONNX function found for <OpOverload\(op='(.+?)', overload='(.+?)'", str(error)
    )
    node = _node_at_fault(error)
    line = user_line(node.stack_trace) if node is not None else None
    module = _module_of(node) if node is not None else None
    reason = f"{missing[1]}.{missing[2]} has no ONNX translation" if missing else _root(error)
    places = [f"node {node.name}" if node else "", f"in {module}" if module else ""]
    where = "".join(f", {place}" for place in [*places, f"at {line}" if line else ""] if place)
    return ConversionError(
        f"cannot convert to ONNX: {reason}{where}. Rewrite that line with operators that ONNX has",
        node=node.name if node is not None else None,
        source_line=line,
    )


def _node_at_fault(error: Exception) -> torch.fx.Node | None:
    """The node torch.onnx was translating.

    It belongs to the decomposed program, which nothing but the frames of the traceback holds.
    """
    for cause in _chain(error):
        name = re.match(r"Error when translating node %(\w+)", str(cause))
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            node = frame.f_locals.get("node")
            if name and isinstance(node, torch.fx.Node) and node.name == name[1]:
                return node
    return None


def _module_of(node: torch.fx.Node) -> str | None:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return None
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else kind.__qualname__
    return f"{path or 'the model'} ({kind.rsplit('.', 1)[-1]})"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what torch says about itself (operators of packages not installed, graphs).

    What matters comes back as an error. Logs the user asked for (TORCH_LOGS) are shown.
    """
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "torch"]
    loggers = [logging.root, *map(logging.getLogger, names)]
    unasked = [logger for logger in loggers if not logger.isEnabledFor(logging.INFO)]
    handlers = [handler for logger in unasked for handler in logger.handlers]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)


@contextmanager
def _flat(program: ExportedProgram) -> Iterator[None]:
    """Leave nesting, None and numbers out of the program inside the block: the signature has them.

    torch.onnx traces the program again to decompose it. Caches that transformers itself registered
    with pytrees compute when they are put together, which would end up in the graph and fail
    ("Constant tensor lifted_tensor_0 is not in the constants dictionary").
    """
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    root = program.module_call_graph[0].signature
    call = root.in_spec, root.out_spec, root.forward_arg_names
    before = output.args, list(specs), program.example_inputs, program._guards_code
    kept = [not isinstance(spec.arg, ConstantArgument) for spec in specs]
    inputs = tuple(pytree.tree_leaves(program.example_inputs))
    output.args = (tuple(a for a, keep in zip(before[0][0], kept, strict=True) if keep),)
    specs[:] = [spec for spec, keep in zip(before[1], kept, strict=True) if keep]
    root.in_spec = pytree.tree_structure((inputs, {}))
    root.out_spec = pytree.tree_structure([0] * sum(kept))
    root.forward_arg_names = None
    program.example_inputs = (inputs, {})
    program._guards_code = []  # they speak of the nested arguments
    try:
        yield
    finally:
        root.in_spec, root.out_spec, root.forward_arg_names = call
        output.args, specs[:], program.example_inputs, program._guards_code = before
