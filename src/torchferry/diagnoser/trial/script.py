"""``torch.onnx.export(dynamo=False)``: a module as TorchScript traces it.

A trace keeps what the example did: a choice that its values decided is made for good, and only a
warning says so.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch.export import Dim as TorchDim
from torch.overrides import TorchFunctionMode

from torchferry.capturer import export_arguments
from torchferry.converter.torch_onnx import Flat, script_bytes
from torchferry.diagnoser.replace.segment import plain_signature
from torchferry.diagnoser.trial.made import (
    Attempted,
    Options,
    arguments_of,
    save_to_run,
    tensors_of,
)
from torchferry.diagnoser.trial.quiet import modules_here
from torchferry.observer.observation import Call, Observation
from torchferry.runner import Session
from torchferry.seams.pytorch import TracerWarning, onnx_log_off
from torchferry.values.clone import clone
from torchferry.values.signature import SIGNATURE_KEY
from torchferry.values.source_line import line_here

__all__ = ["torch_script"]

Lines = dict[str, frozenset[int]]
"""Lines of the user, each with the ``id`` of the modules that were being called."""

# What gives Python a value of a tensor.
_READS = {
    "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__",
    "item", "numpy", "tolist",
}  # fmt: skip
# The same, of which the tracer does not warn.
_SILENT = {"allclose", "equal", "is_nonzero"}


def torch_script(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """The older exporter, with all inputs and outputs taken apart."""
    args, kwargs, _ = export_arguments(model, seen, TorchDim.DYNAMIC)
    flat = Flat(model, (args, kwargs))
    names = [f"input_{index}" for index in range(len(flat.tensors))]
    dynamic = {path: axes for path, axes in seen.map_axes(lambda *_: True).items() if axes}
    axes = {}
    for name, (path, _) in zip(names, flat.places, strict=True):
        if path in dynamic:
            axes[name] = {axis: f"{name}_dim_{axis}" for axis in dynamic[path]}
    silent = _Reads(_SILENT)
    with _hearing() as lines, silent:
        content = script_bytes(flat, names, axes, **options)

    @functools.cache
    def session() -> Session:
        # What onnxruntime has no kernel for is told by dtypes.
        made = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.load_from_string(content)))
        made.metadata_props[SIGNATURE_KEY] = plain_signature(made.graph).to_json()
        with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
            return Session(save_to_run(made, folder))

    def run(call: Call) -> list[torch.Tensor]:
        pairs = zip(names, tensors_of(arguments_of(model, seen, call)), strict=True)
        feeds = {name: t.detach().cpu() for name, t in pairs if name in session().inputs}
        return [*session().run(feeds).values()]

    read = _lines_that_read(lambda: flat(*clone(flat.tensors))) if lines else {}
    heard = {**silent.lines, **{line: lines[line] for line in lines if line in read}}
    decided, inside = next(iter(heard.items()), (None, frozenset()))
    return Attempted(
        content,
        run,
        line_at_fault=lambda _call: next(iter(lines), None),
        flat=True,
        decided=decided,
        inside=inside,
        dynamic_shapes=axes,
    )


@contextmanager
def _hearing() -> Iterator[Lines]:
    """Collect the user's lines at which the tracer warns that it may not see what is done."""
    lines: Lines = {}

    def heard(_said: Warning | str, category: type[Warning], *_: Any, **_more: Any) -> None:
        line = line_here()
        if issubclass(category, TracerWarning) and line:
            lines.setdefault(line, modules_here())

    with onnx_log_off(), warnings.catch_warnings():
        warnings.simplefilter("always", TracerWarning)
        warnings.showwarning = heard  # type: ignore[assignment]  # it takes the rest too
        yield lines


class _Reads(TorchFunctionMode):
    """Notices where Python is given a value of a tensor; sizes are none outside of a trace."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names
        self.lines: Lines = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, and keep the line when it reads."""
        line = line_here() if getattr(func, "__name__", "") in self.names else None
        if line is not None:
            self.lines.setdefault(line, modules_here())
        return func(*args, **(kwargs or {}))


def _lines_that_read(run: Callable[[], Any]) -> Lines:
    reads = _Reads(_READS)
    with torch.no_grad(), reads:
        run()
    return reads.lines
