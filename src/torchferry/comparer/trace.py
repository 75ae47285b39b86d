"""Every intermediate value of a program, a module or an ONNX model, one after the other.

All three give ``(name, tensor)`` in the order of computation and keep nothing themselves that no
later step needs, so that whoever compares decides what stays in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from torchferry.comparer.piece import Runner, tensor_of_ort, weight_bytes
from torchferry.comparer.window import Windows
from torchferry.converter.in_place import functional_form
from torchferry.errors import RunError, UsageError
from torchferry.values.clone import clone
from torchferry.values.flatten import flatten

__all__ = ["single_modules", "trace_modules", "trace_onnx", "trace_program"]

Values = Iterator[tuple[str, torch.Tensor]]

_WEIGHTS_AT_ONCE = 2**26  # bytes
_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def trace_program(program: ExportedProgram, feeds: Sequence[torch.Tensor]) -> Values:
    """Run a program node by node.

    Args:
        program: as it is converted; what it writes to in place is yielded as it was before.
        feeds: the tensors it takes, in order.

    Yields:
        Names of FX nodes and their tensors; of a node with several, those of its items as
        ``NAME:0``. Numbers are left out.

    Raises:
        UsageError: the program takes something that is no tensor.
    """
    interpreter = _Interpreter(program.graph_module)
    given = iter(feeds)
    held = {**program.state_dict, **program.constants}
    specs = iter(program.graph_signature.input_specs)
    for node in program.graph.nodes:
        if node.op == "output":
            return
        if node.op == "placeholder":
            value = _placed(node, next(specs), held, given)
        else:
            with torch.no_grad():
                value = interpreter.run_node(node)
        interpreter.env[node] = value
        if isinstance(value, torch.Tensor):
            yield node.name, value
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    yield f"{node.name}:{index}", item
        for last in interpreter.user_to_last_uses.get(node, ()):
            interpreter.env.pop(last, None)


class _Interpreter(torch.fx.Interpreter):
    """Leaves earlier values as they were: a write in place is made to a copy."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if functional_form(target) is not None:
            args = (args[0].clone(), *args[1:])
        return super().call_function(target, args, kwargs)


def _placed(
    node: torch.fx.Node, spec: Any, held: Mapping[str, Any], given: Iterator[torch.Tensor]
) -> Any:
    if spec.kind in _WEIGHTS:
        return held[spec.target]
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    if spec.kind is InputKind.USER_INPUT and isinstance(node.meta.get("val"), torch.Tensor):
        return next(given)
    raise UsageError(f"input {node.name} of the program is no tensor: it cannot be traced")


def trace_modules(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    wanted: Collection[str],
    *,
    budget: int = 2**26,
) -> Values:
    """Run a module with hooks, several times if its outputs are large.

    Args:
        model: run without gradients, with a copy of the arguments each time.
        args: positional arguments.
        kwargs: named arguments.
        wanted: paths of submodules; ``""`` is the model itself.
        budget: bytes of outputs that are kept at once.

    Yields:
        Paths of submodules and the first tensor of what they return, the others as ``PATH:1``;
        of several calls of a module, the last. In the order in which the last calls end.
    """
    modules = {path: module for path, module in model.named_modules() if path in wanted}
    sizes = _sizes(model, modules, args, kwargs)
    group: list[str] = []
    for path in sizes:
        group.append(path)
        if sum(sizes[p] for p in group) >= budget or path == [*sizes][-1]:
            yield from _outputs(model, {p: modules[p] for p in group}, args, kwargs)
            group = []


def single_modules(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> frozenset[str]:
    """Paths of the submodules whose last call returns exactly one tensor."""
    counts: dict[str, int] = {}

    def see(path: str, output: Any) -> None:
        counts[path] = len(_tensors(output))

    _run_hooked(model, dict(model.named_modules()), args, kwargs, see)
    return frozenset(path for path, count in counts.items() if count == 1)


def _sizes(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, int]:
    """Bytes that each module returns, in the order in which their last calls end."""
    sizes: dict[str, int] = {}

    def see(path: str, output: Any) -> None:
        sizes.pop(path, None)
        sizes[path] = sum(tensor.nbytes for tensor in _tensors(output))

    _run_hooked(model, modules, args, kwargs, see)
    return sizes


def _outputs(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Values:
    found: dict[str, list[torch.Tensor]] = {}

    def keep(path: str, output: Any) -> None:
        found.pop(path, None)
        # A copy: what follows may write in place.
        found[path] = [tensor.detach().clone() for tensor in _tensors(output)]

    _run_hooked(model, modules, args, kwargs, keep)
    for path, tensors in found.items():
        for index, tensor in enumerate(tensors):
            yield (f"{path}:{index}" if index else path), tensor


def _run_hooked(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    see: Any,
) -> None:
    def hook(path: str) -> Any:
        return lambda _module, _args, output: see(path, output)

    handles = [module.register_forward_hook(hook(path)) for path, module in modules.items()]
    args, kwargs = clone((args, dict(kwargs)))
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves = [leaf for _, leaf in flatten(value)[0]]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not leaf.is_nested]


def trace_onnx(
    model: ir.Model,
    feeds: Mapping[str, onnxruntime.OrtValue],
    *,
    runner: Runner | None = None,
    wanted: Collection[str] | None = None,
    size: int = 64,
) -> Values:
    """Run an ONNX model in windows.

    Args:
        model: its nodes in order.
        feeds: by name of the input.
        runner: at which level, on which providers; onnxruntime without optimizations if ``None``.
        wanted: names of values; all if ``None``.
        size: nodes in a window.

    Yields:
        Names of values and their tensors.

    Raises:
        RunError: onnxruntime fails; names the node.
    """
    windows = Windows(model, feeds, runner or Runner())
    for group in _groups(model.graph, size):
        names = [str(v.name) for node in group for v in node.outputs if v.name]
        asked = set(names) if wanted is None else set(names) & set(wanted)
        found = windows.run(group, asked)
        for node, reason in windows.failed.items():
            raise RunError(f"{node.op_type} {node.name}: {reason}", node=node.name)
        for name in names:
            tensor = tensor_of_ort(found[name]) if name in found else None
            if tensor is not None:
                yield name, tensor


def _groups(nodes: Iterable[ir.Node], size: int) -> Iterator[list[ir.Node]]:
    """Consecutive nodes; fewer where they have large weights."""
    group: list[ir.Node] = []
    weights = 0
    for node in nodes:
        group.append(node)
        weights += weight_bytes(node)
        if len(group) == size or weights >= _WEIGHTS_AT_ONCE:
            yield group
            group, weights = [], 0
    if group:
        yield group
