"""``torch.onnx.export`` as it stands, both of its exporters, to compare ours with."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.errors import ConversionError
from torchferry.seams.traces import traced
from torchferry.values.buffers import buffers_kept
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import flatten, unflatten
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["Flat", "export_module", "export_program", "export_script", "script_bytes"]

Axes = Mapping[str, Mapping[int, str]]
"""Names of the dynamic axes, by names of inputs."""


def export_module(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    opset: int,
) -> tuple[ir.Model, ExportedProgram, ExportedProgram]:
    """``torch.onnx.export`` as it stands: its capture, its translation.

    Returns: the model, the program that was translated, and that program as it was captured, which
        has the guards that the other has lost.

    Raises:
        ConversionError: it failed; the message is the first line of its own.
    """
    with _captures() as captured:
        result = _exported(
            model, args, opset, kwargs=dict(kwargs), dynamic_shapes=dynamic_shapes, optimize=False
        )
    if result.exported_program is None:
        raise ConversionError("torch.onnx returned no program")
    return result.model, result.exported_program, [result.exported_program, *captured][-1]


@contextmanager
def _captures() -> Iterator[list[ExportedProgram]]:
    """The programs that torch.export gives to whoever calls it in the block."""
    found: list[ExportedProgram] = []
    whole, draft = torch.export.export, torch.export.draft_export

    def noted(export: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
        def run(*args: Any, **kwargs: Any) -> ExportedProgram:
            found.append(program := export(*args, **kwargs))
            return program

        return run

    torch.export.export, torch.export.draft_export = noted(whole), noted(draft)
    try:
        yield found
    finally:
        torch.export.export, torch.export.draft_export = whole, draft


def export_program(program: ExportedProgram, opset: int | None, *, optimize: bool) -> ir.Model:
    """What ``torch.onnx.export`` makes of a program.

    Raises:
        ConversionError: it failed; the message is the first line of its own.
    """
    return _exported(program, (), opset, optimize=optimize).model


class Flat(torch.nn.Module):
    """A module that takes tensors and returns tensors, whatever the one inside does.

    Attributes:
        places: path below args or kwargs, and leaf, of every tensor argument.
        tensors: those leaves.
    """

    def __init__(
        self, inner: torch.nn.Module, given: tuple[tuple[Any, ...], Mapping[str, Any]]
    ) -> None:
        """Take what is to be called, and an example of what it is called with."""
        super().__init__()
        self.inner = inner
        self.training = inner.training
        leaves, self.structure = flatten(given)
        self.leaves = [leaf for _, leaf in leaves]
        # The first step says only whether it is args or kwargs.
        self.places = [(p[1:], leaf) for p, leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaf for _, leaf in self.places]

    def train(self, mode: bool = True) -> Flat:
        """Set the mode of every module; those of exported programs refuse to be asked."""
        for module in self.modules():
            module.training = mode
        return self

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module inside with these tensors in the place of those of the example."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = unflatten(leaves, self.structure)
        found, _ = flatten(self.inner(*args, **kwargs))
        return tuple(leaf for _, leaf in found if isinstance(leaf, torch.Tensor))


def script_bytes(flat: Flat, names: Sequence[str], axes: Axes, **options: Any) -> bytes:
    """What the TorchScript exporter makes of a module; it raises anything, and warns of much."""
    stream = io.BytesIO()
    given = {"input_names": [*names], "dynamic_axes": axes, **options}
    with torch.no_grad():
        torch.onnx.export(
            flat,
            tuple(flat.tensors),
            stream,  # type: ignore[arg-type]  # the older exporter writes to streams too
            dynamo=False,
            **given,
        )
    return stream.getvalue()


def export_script(flat: Flat, names: Sequence[str], axes: Axes, opset: int | None) -> ir.Model:
    """What the TorchScript exporter makes of a module, which stays as it was.

    Raises:
        ConversionError: it failed; the message is the first line of its own.
    """
    modes = [(module, module.training) for module in flat.modules()]
    with _quiet(), random_kept(), buffers_kept(flat):
        content, error = attempt(partial(script_bytes, flat, names, axes, opset_version=opset))
    for module, training in modes:
        module.training = training
    if error is not None:
        raise ConversionError(f"torch.onnx.export failed: {_root(error)}") from error
    return ir.from_proto(onnx.load_model_from_string(content))


def _exported(model: Any, args: Any, opset: int | None, **options: Any) -> torch.onnx.ONNXProgram:
    with _quiet(), torch.no_grad(), traced():
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

    Its fused transformer path, which no graph takes, is off.

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
        with (
            disable_fast_paths(),
            warnings.catch_warnings(),
            redirect_stderr(StringIO()),
            redirect_stdout(StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
