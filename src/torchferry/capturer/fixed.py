"""Dimensions that had to be dynamic and that a program has as constants, with the user's line."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from torch.export import ExportedProgram

from torchferry.capturer.watch import ShapeEvents
from torchferry.dims import Dim, Size, parse_size, solve_renaming
from torchferry.observer import Argument, Axis, Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import input_sizes, leaves_of, program_inputs
from torchferry.values.flatten import Path

__all__ = ["Fixed", "find_fixed"]


@dataclass(frozen=True)
class Fixed:
    """A dimension, or an integer, that had to be dynamic and that the code made a constant.

    Attributes:
        argument: the argument's path as text.
        axis: which dimension; -1 for an integer.
        name: what the dimension is called.
        size: the constant, or the other dimension it is made equal to.
        line: ``file:line: code`` that did it, when known.
    """

    argument: str
    axis: int
    name: str
    size: Size
    line: str | None

    def __str__(self) -> str:
        where = f" by {self.line}" if self.line else ""
        tied = "fixed to" if isinstance(self.size, int) else "tied to"
        place = f"{self.argument} axis {self.axis}"
        what = f"integer {self.argument}" if self.axis < 0 else f"dimension {self.name} ({place})"
        return f"{what} was {tied} {self.size}{where}"


def find_fixed(
    program: ExportedProgram, seen: Observation, events: ShapeEvents | None = None
) -> tuple[Fixed, ...]:
    """Dimensions that vary in ``seen`` but are constant, or tied to another one, in a program.

    Args:
        program: an exported program of the observed model.
        seen: which dimensions must be dynamic.
        events: what was heard while torch traced; gives the user's lines.
    """
    nodes = {unaliased(path): (path, node) for path, node in program_inputs(program)}
    axes: dict[str, tuple[Argument, Axis, Path]] = {}
    sizes: list[tuple[str, Size, Size]] = []
    leaves = leaves_of(*(program.example_inputs or ((), {})))
    constants = {unaliased(p): leaf for p, leaf in leaves.items() if isinstance(leaf, int)}
    fixed = []
    for argument in seen.arguments:
        key = unaliased(argument.path)
        if argument.integer is not None and key not in nodes and key in constants:
            name = str(argument.integer.size)
            source = _source(seen.signature, argument.path)
            line = events.line_of(source, -1) if events else None
            fixed.append(Fixed(argument.name, -1, name, constants[key], line))
        if key not in nodes:
            continue
        path, node = nodes[key]
        for axis in argument.sizes:
            if isinstance(axis.size, Dim):
                place = f"{argument.name} axis {axis.index}"
                axes[place] = (argument, axis, path)
                found = parse_size(str(input_sizes(node)[axis.index]))
                sizes.append((place, found, axis.size))
    for place, found, wanted in solve_renaming(sizes).conflicts:
        argument, axis, path = axes[place]
        source = _source(seen.signature, path)
        line = events.line_of(source, axis.index) if events else None
        fixed.append(Fixed(argument.name, axis.index, str(wanted), found, line))
    return tuple(fixed)


def _source(signature: inspect.Signature, path: Path) -> Path:
    """The path as torch has it: an argument given by position goes by its parameter's name."""
    first, *rest = path
    if not isinstance(first, int):
        return path
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (parameter.name, first - position, *rest)
        if position == first:
            return (parameter.name, *rest)
    return path
