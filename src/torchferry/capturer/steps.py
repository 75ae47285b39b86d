"""What a loop counts and takes: ``range(m, n)``, or the slices along a tensor's first axis."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

__all__ = ["Steps", "steps_of"]


@dataclass(frozen=True)
class Steps:
    """What a loop counts, and what it takes.

    Attributes:
        stop: the end of the count.
        start: its begin; ``None`` for 0.
        counter: the name that counts; ``""`` for none.
        row: the name of the slice taken; ``""`` for none.
        over: the name of what it is taken of.
    """

    stop: ast.expr
    start: ast.expr | None = None
    counter: str = ""
    row: str = ""
    over: str = ""

    def count(self, dispatch: str) -> str:
        """How many steps there are, as code."""
        count = self.stop if self.start is None else ast.BinOp(self.stop, ast.Sub(), self.start)
        return ast.unparse(_Lengths(dispatch).visit(copy.deepcopy(count)))

    def first(self, dispatch: str) -> str:
        """The first index, as code."""
        start = ast.Constant(0) if self.start is None else copy.deepcopy(self.start)
        return ast.unparse(_Lengths(dispatch).visit(start))


def steps_of(statement: ast.For) -> Steps | None:
    """The steps of a loop over ``range(n)``, ``range(m, n)``, ``x`` or ``enumerate(x)``."""
    match statement:
        case ast.For(orelse=[_, *_]):
            return None
        case ast.For(target=ast.Name(id=counter), iter=ast.Call(ast.Name("range"), bounds, [])):
            match bounds:
                case [stop] if not isinstance(stop, ast.Starred):
                    return Steps(stop, counter=counter)
                # One below 0 would begin at the end of the axis.
                case [start, stop] if not isinstance(start, ast.UnaryOp | ast.Starred):
                    return Steps(stop, start, counter)
        case ast.For(target=ast.Name(id=row), iter=ast.Name(id=over)):
            return Steps(_length(over), row=row, over=over)
        case ast.For(
            target=ast.Tuple([ast.Name(id=counter), ast.Name(id=row)]),
            iter=ast.Call(ast.Name("enumerate"), [ast.Name(id=over)], []),
        ):
            return Steps(_length(over), counter=counter, row=row, over=over)
    return None


class _Lengths(ast.NodeTransformer):
    """Asks for the length of a tensor without making a number of it."""

    def __init__(self, dispatch: str) -> None:
        self.dispatch = dispatch

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("len"), [ast.Name()], []):
                node.func = ast.parse(f"{self.dispatch}.length", mode="eval").body
        return node


def _length(name: str) -> ast.Call:
    return ast.Call(ast.Name("len", ast.Load()), [ast.Name(name, ast.Load())], [])
