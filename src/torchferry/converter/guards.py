"""What a program takes for granted of the sizes of its inputs, in the user's names.

``if x.shape[0] > 5`` is decided when the program is captured: it is right only for sizes that go
the same way. torch.export keeps these tests as text (``L['x'].size()[0] > 5``), and its own
modules check them in every call.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from typing import Any

from torch.export import ExportedProgram

from torchferry.dims import Condition
from torchferry.observer.tree import input_sizes, named_path, program_inputs
from torchferry.values.flatten import Path

__all__ = ["conditions_of"]

_log = logging.getLogger("torchferry")


def conditions_of(program: ExportedProgram, named: Callable[[str], str]) -> list[Condition]:
    """The tests on sizes that the program's inputs must pass.

    One that cannot be told in sizes of the inputs is logged.

    Args:
        program: as torch.export made it.
        named: a size in torch's symbols to the same in the user's names.
    """
    sizes = {text: named(size) for text, size in _sources(program)}
    found: list[Condition] = []
    for guard in program._guards_code:
        numbered = _Numbered(sizes)
        test = ast.unparse(numbered.visit(ast.parse(guard, mode="eval")))
        try:
            found.append(Condition(test, tuple(numbered.sizes)))
        except ValueError:
            _log.warning("the program holds only where %s, which calls do not check", guard)
    return list(dict.fromkeys(found))


class _Numbered(ast.NodeTransformer):
    """Puts ``n0``, ``n1`` in the place of the sizes of inputs."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.sizes: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        size = self.sources.get(ast.unparse(node)) if isinstance(node, ast.expr) else None
        if size is None:
            return super().visit(node)
        if size not in self.sizes:
            self.sizes.append(size)
        return ast.Name(f"n{self.sizes.index(size)}")


def _sources(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """How guards call each size of an input, and the size in torch's symbols."""
    for path, node in program_inputs(program):
        for axis, size in input_sizes(node).items():
            for place in {named_path(program, path), *_variadic(named_path(program, path))}:
                text = "L" + "".join(f"[{key!r}]" for key in place)
                yield (text if axis < 0 else f"{text}.size()[{axis}]"), str(size)


def _variadic(path: Path) -> Iterator[Path]:
    """``xs_0`` is the first of ``*xs``."""
    name, _, number = str(path[0]).rpartition("_")
    if name and number.isdecimal():
        yield (name, int(number), *path[1:])
