"""Attributes of modules that ``forward`` changes, which no exported program can carry on."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

__all__ = ["Change", "watch_state", "written_buffers"]

_CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True)
class Change:
    """An attribute that has another value after ``forward`` than before.

    Attributes:
        name: the module's path and the attribute: ``encoder.steps``.
        before: what the exported program has in every call, as text; of a container, its length.
        after: what eager PyTorch goes on with.
    """

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return (
            f"forward changes self.{self.name} from {self.before} to {self.after}; the exported "
            f"program has {self.before} in every call: register it as a buffer and update that, "
            "or make it an argument and an output"
        )


@contextmanager
def watch_state(model: torch.nn.Module) -> Iterator[list[Change]]:
    """Collect what changes of the Python state of a model while the block runs.

    Numbers, strings, tensors that are no buffers and the lengths of containers are compared. An
    attribute that the class sets before it reads it carries nothing from call to call, and is not
    told. Nor are buffers and parameters: torch.export follows those.

    Args:
        model: any module; its submodules too.

    Yields:
        a list that is filled at the end of the block.
    """
    before = _state(model)
    changes: list[Change] = []
    yield changes
    after = _state(model)
    for place, value in before.items():
        now = after.get(place, value)
        if _differ(value, now):
            path, name = place
            module = model.get_submodule(path)
            if _reads_first(type(module), name):
                full = f"{path}.{name}" if path else name
                changes.append(Change(full, _shown(value), _shown(now)))


def written_buffers(program: ExportedProgram) -> set[str]:
    """Names of the buffers that operators of a program write to, as ``add_`` does."""
    buffers = program.graph_signature.inputs_to_buffers
    found = set()
    for node in program.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            for given, said in zip(node.args, node.target._schema.arguments, strict=False):
                written = said.alias_info is not None and said.alias_info.is_write
                if written and isinstance(given, Node) and given.name in buffers:
                    found.add(buffers[given.name])
    return found


def _state(model: torch.nn.Module) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            # Private ones of torch.nn.Module are among those with an underscore.
            if name.startswith("_") and type(module).__module__.startswith("torch."):
                continue
            if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
                found[path, name] = value
            elif isinstance(value, _CONTAINERS) and name not in vars(torch.nn.Module()):
                found[path, name] = len(value)
    return found


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
        return before is not after
    # Sizes of the inputs are symbols while a model is traced.
    symbolic = isinstance(after, torch.SymInt | torch.SymFloat | torch.SymBool)
    return not symbolic and type(after) is type(before) and bool(after != before)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return repr(value)


def _reads_first(cls: type[torch.nn.Module], name: str) -> bool:
    """Whether methods of a class read an attribute before they set it, as the source has them."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return True
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            uses = sorted(_uses(method, name))
            if uses:
                return not uses[0][2]
    return True


def _uses(method: ast.FunctionDef, name: str) -> Iterator[tuple[int, int, bool]]:
    """Where ``self.name`` stands, and whether it is set there; what is set is set last."""
    ends: dict[int, tuple[int, int]] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            end = (node.end_lineno or 0, node.end_col_offset or 0)
            ends |= {id(part): end for target in node.targets for part in ast.walk(target)}
        if isinstance(node, ast.AugAssign):
            ends[id(node.target)] = (-1, -1)
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{name}":
            line, column = ends.get(id(node), (node.lineno, node.col_offset))
            reads = isinstance(node.ctx, ast.Load) or line < 0
            yield (node.lineno if line < 0 else line, column, not reads)
