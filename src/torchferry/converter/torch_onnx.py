"""``torch.onnx.export`` as it stands, to compare ours with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.errors import ConversionError

__all__ = ["export_module", "export_program"]


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
    result = _exported(
        model, args, opset, kwargs=dict(kwargs), dynamic_shapes=dynamic_shapes, optimize=False
    )
    if result.exported_program is None:
        raise ConversionError("torch.onnx returned no program")
    return result.model, result.exported_program


def export_program(program: ExportedProgram, opset: int | None, *, optimize: bool) -> ir.Model:
    """What ``torch.onnx.export`` makes of a program.

    Raises:
        ConversionError: it failed; the message is the first line of its own.
    """
    return _exported(program, (), opset, optimize=optimize).model


def _exported(model: Any, args: Any, opset: int | None, **options: Any) -> torch.onnx.ONNXProgram:
    with _quiet(), torch.no_grad():
        try:
            result = torch.onnx.export(
                model, args, dynamo=True, opset_version=opset, verbose=False, **options
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ConversionError(f"torch.onnx.export failed: {_root(error)}") from error
    if result is None:
        raise ConversionError("torch.onnx returned no model")
    return result


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
