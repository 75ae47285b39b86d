"""The four ways to export a module, each a function in one table."""

from __future__ import annotations

import functools
import inspect
import io as streams
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import Dim as TorchDim

from torchferry.capturer import Captured, Fixed, accept_aliases, capture, export_arguments
from torchferry.capturer.fixed import find_fixed
from torchferry.capturer.watch import watch_shapes
from torchferry.converter import convert
from torchferry.diagnoser.divergence import line_of_difference
from torchferry.errors import ConversionError
from torchferry.graph import io
from torchferry.observer.keywords import explicit_keywords
from torchferry.observer.observation import Call, Observation
from torchferry.runner import Session
from torchferry.values.clone import clone
from torchferry.values.flatten import flatten, unflatten
from torchferry.values.oblivious import sizes_oblivious

__all__ = [
    "EXPORTERS",
    "Attempted",
    "as_module",
    "convert_seen",
    "export_once",
    "fx_once",
    "tensors_of",
]

Run = Callable[[Call], Any]


@dataclass(frozen=True)
class Attempted:
    """A module that was exported.

    Attributes:
        exported: what the exporter made.
        run: runs it on the inputs of a call; gives the nested outputs, or their tensors in a list.
        run_freely: the same without the guards torch.export adds to a program.
        line_at_fault: the user's line from which the program of torch.export computes something
            else on a call than the module does; see `line_of_difference`.
        flat: whether it gives a list of tensors.
        fixed: dimensions that had to be dynamic and are constants in it.
        dynamic_shapes: what was given to the exporter.
    """

    exported: Any
    run: Run
    run_freely: Run | None = None
    line_at_fault: Callable[[Call], str | None] | None = None
    flat: bool = False
    fixed: tuple[Fixed, ...] = ()
    dynamic_shapes: Any = None


Options = Mapping[str, Any]
Exporter = Callable[[torch.nn.Module, Observation, Options], Attempted]


def as_module(model: torch.nn.Module, method_name: str) -> torch.nn.Module:
    """The module itself, or one whose ``forward`` is another method of it: exporters take modules.

    >>> class Coder(torch.nn.Module):
    ...     def encode(self, x):
    ...         return x + 1
    >>> as_module(Coder(), "encode")(torch.zeros(1))
    tensor([1.])
    """
    return model if method_name == "forward" else _Method(model, method_name)


class _Method(torch.nn.Module):
    """A method of a module as a module."""

    def __init__(self, module: torch.nn.Module, method_name: str) -> None:
        super().__init__()
        self.module = module
        self.method_name = method_name
        self.train(module.training)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return getattr(module, method_name)(*args, **kwargs)

        # Exporters read the signature here.
        vars(forward)["__signature__"] = inspect.signature(getattr(module, method_name))
        self.forward = forward


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in order; an ONNX graph gives nothing else.

    >>> tensors_of({"y": torch.zeros(1), "n": None})
    [tensor([0.])]
    """
    return [leaf for _, leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _fx(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """``torch.export.export``: every strategy of `capture`, or just the options given."""
    if not options:
        captured = capture(model, seen)
        return _program(model, seen, captured.program, captured.fixed, captured.dynamic_shapes)
    with _ready(model, seen) as (args, kwargs, shapes):
        program = torch.export.export(model, args, kwargs, **{"dynamic_shapes": shapes, **options})
    return _program(model, seen, program, (), shapes)


@contextmanager
def _ready(
    model: torch.nn.Module, seen: Observation
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """What exporters of PyTorch take, with ``**kwargs`` of forward made explicit in the block."""
    names = accept_aliases(model, seen.normalized(seen.best)[1])
    with explicit_keywords(model, names), torch.no_grad():
        yield export_arguments(model, seen, TorchDim.DYNAMIC)


def _program(
    model: torch.nn.Module,
    seen: Observation,
    program: torch.export.ExportedProgram,
    fixed: tuple[Fixed, ...],
    shapes: Any,
) -> Attempted:
    guarded = functools.cache(program.module)
    free = functools.cache(functools.partial(program.module, check_guards=False))

    def run(call: Call) -> Any:
        args, kwargs = clone(_arguments(model, seen, call))
        with torch.no_grad():
            return guarded()(*args, **kwargs)

    def run_freely(call: Call) -> Any:
        args, kwargs = clone(_arguments(model, seen, call))
        with torch.no_grad():
            return free()(*args, **kwargs)

    return Attempted(
        program,
        run,
        run_freely,
        functools.partial(_line_at_fault, model, seen, program),
        fixed=fixed,
        dynamic_shapes=shapes,
    )


def _line_at_fault(
    model: torch.nn.Module, seen: Observation, program: torch.export.ExportedProgram, call: Call
) -> str | None:
    given, (args, kwargs) = clone((call.args, call.kwargs)), clone(_arguments(model, seen, call))
    return line_of_difference(lambda: model(*given[0], **given[1]), program, args, kwargs)


def _arguments(
    model: torch.nn.Module, seen: Observation, call: Call
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = seen.normalized(call)
    return args, accept_aliases(model, kwargs)


def export_once(model: torch.nn.Module, seen: Observation) -> torch.export.ExportedProgram:
    """``torch.export.export`` by the first strategy of `capture` alone, without its patches."""
    return _once(model, seen)[0]


def fx_once(model: torch.nn.Module, seen: Observation, _options: Options) -> Attempted:
    """`export_once`, made ready to be compared: what fails here may work by other strategies."""
    with watch_shapes() as events:
        program, shapes = _once(model, seen)
    return _program(model, seen, program, find_fixed(program, seen, events), shapes)


def _once(model: torch.nn.Module, seen: Observation) -> tuple[torch.export.ExportedProgram, Any]:
    with sizes_oblivious(), _ready(model, seen) as (args, kwargs, shapes):
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes), shapes


def _to_onnx(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """Our capture and conversion."""
    captured = capture(model, seen)
    made = convert_seen(captured, seen, options)

    @functools.cache
    def session() -> Session:
        # onnxruntime keeps what it needs of the files open.
        with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
            io.save(made, Path(folder) / "model.onnx")
            return Session(Path(folder) / "model.onnx")

    def run(call: Call) -> Any:
        args, kwargs = _arguments(model, seen, call)
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
    parameters = seen.signature.parameters.items()
    defaults = {name: p.default for name, p in parameters if p.default is not p.empty}
    return convert(captured.program, **{"dims": dims, "defaults": defaults, **(options or {})})


def _onnx_dynamo(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """``torch.onnx.export(dynamo=True)`` as it stands."""
    with _ready(model, seen) as (args, kwargs, shapes):
        given = {"dynamic_shapes": shapes, "verbose": False, **options}
        made = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, **given)
    if made is None:
        raise ConversionError("torch.onnx.export returned no model; leave out the file to write")

    def run(call: Call) -> list[torch.Tensor]:
        args, kwargs = clone(_arguments(model, seen, call))
        return list(made(*args, **kwargs))

    return Attempted(made, run, flat=True, dynamic_shapes=shapes)


def _torch_script(model: torch.nn.Module, seen: Observation, options: Options) -> Attempted:
    """``torch.onnx.export(dynamo=False)``: traced, with all inputs and outputs taken apart."""
    args, kwargs, _ = export_arguments(model, seen, TorchDim.DYNAMIC)
    flat = _Flat(model, (args, kwargs))
    names = [f"input_{index}" for index in range(len(flat.tensors))]
    dynamic = {path: axes for path, axes in seen.map_axes(lambda *_: True).items() if axes}
    axes = {}
    for name, (path, _) in zip(names, flat.places, strict=True):
        if path in dynamic:
            axes[name] = {axis: f"{name}_dim_{axis}" for axis in dynamic[path]}
    stream = streams.BytesIO()
    given = {"input_names": names, "dynamic_axes": axes, **options}
    with torch.no_grad():
        torch.onnx.export(
            flat,
            tuple(flat.tensors),
            stream,  # type: ignore[arg-type]  # the older exporter writes to streams too
            dynamo=False,
            **given,
        )
    content = stream.getvalue()

    @functools.cache
    def session() -> onnxruntime.InferenceSession:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4  # errors come back as exceptions
        return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])

    def run(call: Call) -> list[torch.Tensor]:
        kept = {value.name for value in session().get_inputs()}
        pairs = zip(names, tensors_of(_arguments(model, seen, call)), strict=True)
        feeds = {name: t.detach().cpu().numpy() for name, t in pairs if name in kept}
        return [torch.from_numpy(result) for result in session().run(None, feeds)]

    return Attempted(content, run, flat=True, dynamic_shapes=axes)


class _Flat(torch.nn.Module):
    """A module that takes tensors and returns tensors, whatever the one inside does.

    Attributes:
        places: path below args or kwargs, and leaf, of every tensor argument.
        tensors: those leaves.
    """

    def __init__(
        self, inner: torch.nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> None:
        super().__init__()
        self.inner = inner
        self.train(inner.training)
        leaves, self.structure = flatten(given)
        self.leaves = [leaf for _, leaf in leaves]
        # The first step says only whether it is args or kwargs.
        self.places = [(p[1:], leaf) for p, leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaf for _, leaf in self.places]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module inside with these tensors in the place of those of the example."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = unflatten(leaves, self.structure)
        return tuple(tensors_of(self.inner(*args, **kwargs)))


EXPORTERS: dict[str, Exporter] = {
    "fx": _fx,
    "onnx_dynamo": _onnx_dynamo,
    "torch_script": _torch_script,
    "to_onnx": _to_onnx,
}
"""By the names ``try_export`` takes."""
