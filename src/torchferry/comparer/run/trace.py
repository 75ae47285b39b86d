"""Every intermediate value of a program or an ONNX model, one after the other.

Both give ``(name, tensor)`` in the order of computation and keep nothing themselves that no
later step needs, so that whoever compares decides what stays in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from torchferry.comparer.run.piece import Runner, tensor_of_ort, weight_bytes
from torchferry.comparer.run.window import Windows
from torchferry.converter.program.in_place import functional_form
from torchferry.errors import RunError, UsageError
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["trace_onnx", "trace_program"]

Values = Iterator[tuple[str, torch.Tensor]]

_WEIGHTS_AT_ONCE = 2**26  # bytes
_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def trace_program(
    program: ExportedProgram,
    feeds: Sequence[torch.Tensor],
    weights: Mapping[str, torch.Tensor] | None = None,
    mode: AbstractContextManager[Any] | None = None,
) -> Values:
    """Run a program node by node.

    What torch draws next stays as it was; two runs that begin alike draw the same numbers.

    Args:
        program: as it is converted; what it writes to in place is yielded as it was before.
        feeds: the tensors it takes, in order.
        weights: by name, in the place of the program's own.
        mode: within which each node runs; it is entered anew for each.

    Yields:
        Names of FX nodes and their tensors, numbers as tensors of no dimension; of a node with
        several, those of its items as ``NAME:0``.

    Raises:
        UsageError: the program takes something that is no tensor, or fails on these tensors.
    """
    interpreter = _Interpreter(program.graph_module)
    given = iter(feeds)
    held = {**program.state_dict, **program.constants, **(weights or {})}
    specs = iter(program.graph_signature.input_specs)
    state = torch.get_rng_state()
    for node in program.graph.nodes:
        if node.op == "output":
            return
        if node.op == "placeholder":
            value = _placed(node, next(specs), held, given)
        else:
            with torch.no_grad(), random_kept(state), mode or nullcontext():
                value, error = attempt(interpreter.run_node, node)
                state = torch.get_rng_state()
            if error is not None:
                raise UsageError(_told(node, error)) from error
        interpreter.env[node] = value
        yield from _tensors_of(node.name, value)
        for last in interpreter.user_to_last_uses.get(node, ()):
            interpreter.env.pop(last, None)


def _tensors_of(name: str, value: Any) -> Values:
    """The tensors of what a node gives."""
    if isinstance(value, (list, tuple)):
        items = {f"{name}:{index}": item for index, item in enumerate(value)}
    else:
        items = {name: value}
    for key, item in items.items():
        if isinstance(item, torch.Tensor):
            yield key, item.detach()  # a weight that a node returns may require a gradient
        elif isinstance(item, bool | int | float):
            yield key, torch.tensor(item)


def _told(node: torch.fx.Node, error: Exception) -> str:
    """What a node of a program raised."""
    first = next(iter(str(error).strip().splitlines()), "")
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    where = f" in {stack[-1]}" if stack and stack[-1] else ""
    return (
        f"the captured program fails on these inputs at {node.name} ({node.target}){where}: "
        f"{type(error).__name__}: {first[:300]}\n"
        "  give inputs that the model takes; sizes, and branches, may be those of the capture only"
    )


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
    example = node.meta.get("val")
    if spec.kind is InputKind.USER_INPUT and isinstance(example, torch.Tensor):
        return next(given)
    if spec.kind is InputKind.USER_INPUT and isinstance(example, torch.SymInt | torch.SymFloat):
        return next(given).item()
    raise UsageError(f"input {node.name} of the program is no tensor: it cannot be traced")


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
            said = f"onnxruntime fails at {node.op_type} {node.name}: {reason}"
            raise RunError(said, node=node.name)
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
