"""``to_onnx``: a module or a program as an ONNX model, without the walk around it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer import Captured
from torchferry.capturer.patches import PATCHES
from torchferry.capturer.patching.patching import apply_patches
from torchferry.capturer.state.outside import trace_kept
from torchferry.capturer.tracing import silent
from torchferry.capturer.trial.instructions import model_instructions
from torchferry.capturer.trial.settle import settle_guards
from torchferry.converter import convert
from torchferry.converter.rename import Names, rename_ends
from torchferry.dims import Size, parse_size
from torchferry.dims.spec import AxisSpec, parse_shapes
from torchferry.errors import CaptureError, UsageError
from torchferry.exporter.program import OnnxProgram
from torchferry.observer import Call, Observation, use_dyn_not_str
from torchferry.observer.conditions import missing_guards
from torchferry.observer.module import prepare_module
from torchferry.observer.naming import input_name
from torchferry.observer.tree import input_sizes, leaves_of, named_path, program_inputs
from torchferry.seams.traces import traced
from torchferry.sources.archive import load_program
from torchferry.sources.arguments import AS_GIVEN
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.flatten import register_pytrees
from torchferry.values.oblivious import sizes_oblivious

__all__ = ["to_onnx"]


def to_onnx(
    model: torch.nn.Module | ExportedProgram | Captured | Path | str,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    opset: int | None = None,
    functions: tuple[type[torch.nn.Module] | str, ...] = (),
    input_names: Names = (),
    output_names: Names = (),
) -> OnnxProgram:
    """Convert a module, or a program that was exported before, to ONNX.

    Nothing is optimized or verified: `export` does both. Calls at sizes for which the code does
    something else are refused.

    Args:
        model: a module, an ``ExportedProgram``, what `capture` gave, or a ``.pt2`` file.
        args: positional arguments of a module.
        kwargs: named ones.
        dynamic_shapes: as ``torch.export.export`` takes them; names may stand for ``Dim``.
        opset: ONNX operator set, 18 or newer; 20 when ``None``.
        functions: classes of modules (or their names) that become local ONNX functions.
        input_names: new names, in order or by the old ones: see `rename_ends`.
        output_names: the same.

    Returns:
        A program that runs onnxruntime when it is called as the module is.

    Raises:
        UsageError: arguments or dynamic shapes for what is exported already, or a bad opset.
        CaptureError: torch.export failed. ConversionError: a part has no ONNX form.
    """
    register_pytrees()
    defaults: dict[str, Any] = {}
    dims: dict[tuple[ValuePath, int], Size] = {}
    if isinstance(model, torch.nn.Module):
        prepare_module(model, "to_onnx", args, kwargs or {})
        program: Any = _exported(model, args, dict(kwargs or {}), dynamic_shapes)
        defaults, dims = _stated(model, len(args), dynamic_shapes)
    elif args or kwargs or dynamic_shapes is not None:
        raise UsageError(
            f"a {type(model).__name__} is exported already: args, kwargs and dynamic_shapes are "
            "for modules"
        )
    else:
        program = load_program(Path(model)) if isinstance(model, str | Path) else model
    converted = convert(program, opset=opset, dims=dims, defaults=defaults, functions=functions)
    rename_ends(converted, input_names, output_names)
    return OnnxProgram(converted, getattr(program, "program", program))


def _stated(
    model: torch.nn.Module, count: int, dynamic_shapes: Any
) -> tuple[dict[str, Any], dict[tuple[ValuePath, int], Size]]:
    """Forward's defaults, and the names of dimensions; ``count`` arguments are positional."""
    parameters = inspect.signature(model.forward).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    positions: dict[Any, int] = {name: i for i, name in enumerate([*parameters][:count])}
    dims = {
        ((positions.get(path[0], path[0]), *path[1:]), axis): size
        for path, axis, size in _names(parse_shapes(dynamic_shapes), ())
    }
    return defaults, dims


def _exported(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> Captured:
    shapes = None if dynamic_shapes is None else use_dyn_not_str(dynamic_shapes)
    try:
        patches = apply_patches([patch for patch in PATCHES if patch.silent])
        with (
            torch.no_grad(),
            sizes_oblivious(),
            traced(),
            patches,
            trace_kept(model, leaves_of(args, kwargs).values()),
            model_instructions(model) as ran,
            silent(),
        ):
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch.export lets any exception of the user's code through
        first = (str(error).strip().splitlines() or [""])[0][:300]
        reason = f"{type(error).__name__}: {first}"
        raise CaptureError(
            f"torch.export failed: {reason}. torchferry.capture tries more ways, and tells which "
            "line is at fault",
            (("non-strict", reason),),
        ) from error
    captured = Captured(program, shapes, (), traced=frozenset(ran))
    return _settled(model, captured, Call(args, kwargs))


def _settled(model: torch.nn.Module, captured: Captured, call: Call) -> Captured:
    """The same where sizes of 0 and 1 were tried, under torch's names of the dimensions."""
    program = captured.program
    seen = Observation(
        AS_GIVEN,
        type(model).__name__,
        [call],
        named={
            (input_name(named_path(program, path)), axis): parse_size(str(size))
            for path, node in program_inputs(program)
            for axis, size in input_sizes(node).items()
        },
        positional=tuple(_positions(model, len(call.args))),
    )
    doubts = tuple(missing_guards(program))
    return settle_guards(model, seen, replace(captured, doubts=doubts))


def _positions(model: torch.nn.Module, count: int) -> Iterator[str]:
    """Names of the arguments that may stand by position, as torch.export calls them."""
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (f"{name}_{i}" for i in range(count))
        else:
            yield name


def _names(shapes: Any, path: ValuePath) -> Iterator[tuple[ValuePath, int, Size]]:
    """The names of dimensions in dynamic shapes, by path and axis."""
    items: Any = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
    for key, value in items:
        if not isinstance(value, AxisSpec):
            yield from _names(value, (*path, key))
        elif value.size is not None and not isinstance(value.size, int):
            yield path, key, value.size
