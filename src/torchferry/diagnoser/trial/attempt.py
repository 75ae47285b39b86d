"""The four ways to export a module, each a function in one table."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import Dim as TorchDim

from torchferry.capturer import Captured, accept_aliases, capture, export_arguments
from torchferry.capturer.fixed import find_fixed
from torchferry.capturer.state.lifted import name_lifted
from torchferry.capturer.watch import watch_shapes
from torchferry.converter import convert
from torchferry.diagnoser.explain.divergence import line_of_difference
from torchferry.diagnoser.trial.made import (
    Attempted,
    Exporter,
    Options,
    arguments_of,
    fit_to_run,
    save_to_run,
)
from torchferry.diagnoser.trial.script import torch_script
from torchferry.errors import ConversionError
from torchferry.observer.keywords import defaults_of, explicit_keywords
from torchferry.observer.observation import Call, Observation
from torchferry.runner import Session
from torchferry.values.clone import clone
from torchferry.values.oblivious import sizes_oblivious

__all__ = ["EXPORTERS", "ONCE", "convert_seen", "export_once"]

_FATAL = 4  # a level of onnxruntime's log


def _fx(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """``torch.export.export``: every strategy of `capture`, or just the options given."""
    if not options:
        return _of_captured(model, seen, capture(model, seen, rewrite=False, settle=False))
    with _ready(model, seen) as (args, kwargs, shapes):
        program = torch.export.export(model, args, kwargs, **{"dynamic_shapes": shapes, **options})
    name_lifted(program)
    return _of_captured(model, seen, Captured(program, shapes, ()))


@contextmanager
def _ready(
    model: torch.nn.Module, seen: Observation
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """What exporters of PyTorch take, with ``**kwargs`` of forward made explicit in the block."""
    names = accept_aliases(model, seen.normalized(seen.best)[1])
    with explicit_keywords(model, names), torch.no_grad():
        yield export_arguments(model, seen, TorchDim.DYNAMIC)


def _of_captured(model: torch.nn.Module, seen: Observation, captured: Captured) -> Attempted:
    program = captured.program
    guarded = functools.cache(program.module)
    free = functools.cache(functools.partial(program.module, check_guards=False))

    def run(call: Call) -> Any:
        args, kwargs = clone(arguments_of(model, seen, call))
        with torch.no_grad():
            return guarded()(*args, **kwargs)

    def run_freely(call: Call) -> Any:
        args, kwargs = clone(arguments_of(model, seen, call))
        with torch.no_grad():
            return free()(*args, **kwargs)

    return Attempted(
        program,
        run,
        run_freely,
        functools.partial(_line_at_fault, model, seen, program),
        fixed=captured.fixed,
        dynamic_shapes=captured.dynamic_shapes,
    )


def _line_at_fault(
    model: torch.nn.Module, seen: Observation, program: torch.export.ExportedProgram, call: Call
) -> str | None:
    given, (args, kwargs) = clone((call.args, call.kwargs)), clone(arguments_of(model, seen, call))
    return line_of_difference(lambda: model(*given[0], **given[1]), program, args, kwargs)


def export_once(model: torch.nn.Module, seen: Observation) -> torch.export.ExportedProgram:
    """``torch.export.export`` by the first strategy of `capture` alone, without its patches."""
    return _once(model, seen)[0]


def _fx_once(model: torch.nn.Module, seen: Observation, _options: Options) -> Attempted:
    """`export_once`, made ready to be compared: what fails here may work by other strategies."""
    return _of_captured(model, seen, _captured_once(model, seen))


def _onnx_once(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """The same, converted."""
    return _converted(model, seen, _captured_once(model, seen), options)


def _captured_once(model: torch.nn.Module, seen: Observation) -> Captured:
    with watch_shapes() as events:
        program, shapes = _once(model, seen)
    return Captured(program, shapes, (), find_fixed(program, seen, events))


def _once(model: torch.nn.Module, seen: Observation) -> tuple[torch.export.ExportedProgram, Any]:
    with sizes_oblivious(), _ready(model, seen) as (args, kwargs, shapes):
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes), shapes


def _to_onnx(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """Our capture and conversion."""
    return _converted(model, seen, capture(model, seen, rewrite=False, settle=False), options)


def _converted(
    model: torch.nn.Module, seen: Observation, captured: Captured, options: Options
) -> Attempted:
    made = convert_seen(captured, seen, options)

    @functools.cache
    def session() -> Session:
        # onnxruntime keeps what it needs of the files open.
        with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
            # What a guard excludes is compared like the rest: the numbers tell.
            return Session(save_to_run(made, folder), conditions=False)

    def run(call: Call) -> Any:
        args, kwargs = arguments_of(model, seen, call)
        return session()(*args, **kwargs)

    line = functools.partial(_line_at_fault, model, seen, captured.program)
    return Attempted(
        made,
        run,
        line_at_fault=line,
        fixed=captured.fixed,
        dynamic_shapes=captured.dynamic_shapes,
    )


def convert_seen(
    captured: Captured, seen: Observation, options: Options | None = None
) -> ir.Model:
    """Convert a captured module, with what was seen of its dimensions and its defaults.

    Raises:
        ConversionError: an operator has no ONNX form.
    """
    fixed = {(one.argument, one.axis) for one in captured.fixed}
    dims = {
        (argument.path, axis.index): axis.size
        for argument in seen.arguments
        for axis in argument.axes
        if not isinstance(axis.size, int) and (argument.name, axis.index) not in fixed
    }
    defaults = defaults_of(seen.signature)
    return convert(captured.program, **{"dims": dims, "defaults": defaults, **(options or {})})


def _onnx_dynamo(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """``torch.onnx.export(dynamo=True)`` as it stands."""
    with _ready(model, seen) as (args, kwargs, shapes):
        given = {"dynamic_shapes": shapes, "verbose": False, **options}
        made = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, **given)
    if made is None:
        raise ConversionError("torch.onnx.export returned no model; leave out the file to write")
    fit_to_run(made.model)

    @functools.cache
    def session() -> torch.onnx.ONNXProgram:
        made.initialize_inference_session(_SilentSession)
        return made

    def run(call: Call) -> list[torch.Tensor]:
        args, kwargs = clone(arguments_of(model, seen, call))
        return list(session()(*args, **kwargs))

    program = made.exported_program
    line = None if program is None else functools.partial(_line_at_fault, model, seen, program)
    return Attempted(made, run, line_at_fault=line, flat=True, dynamic_shapes=shapes)


class _SilentSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # has no types
    """What torch.onnx runs a program by; errors come back as exceptions, and are not printed."""

    def __init__(self, model: str | bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        super().__init__(model, options, providers=["CPUExecutionProvider"])

    def run_with_ort_values(
        self, output_names: Any, feeds: Any, run_options: onnxruntime.RunOptions
    ) -> Any:
        """Run with options of torch.onnx, which say that errors are printed."""
        run_options.log_severity_level = _FATAL
        return super().run_with_ort_values(output_names, feeds, run_options)


EXPORTERS: dict[str, Exporter] = {
    "fx": _fx,
    "onnx_dynamo": _onnx_dynamo,
    "torch_script": torch_script,
    "to_onnx": _to_onnx,
}
"""By the names ``try_export`` takes."""

ONCE: dict[str, Exporter] = {"fx": _fx_once, "to_onnx": _onnx_once}
"""The same by one strategy of torch.export, where there are several."""
