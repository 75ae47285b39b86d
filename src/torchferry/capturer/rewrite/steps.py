"""What a loop counts and takes: ``range(m, n)``, or the slices along an axis of tensors."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Row", "Steps", "steps_of"]


@dataclass(frozen=True)
class Row:
    """A slice that a loop takes in each step.

    Attributes:
        name: what it is called.
        over: the name of the tensor.
        axis: of the tensor, as code.
    """

    name: str
    over: str
    axis: str = "0"


@dataclass(frozen=True)
class Steps:
    """What a loop counts, and what it takes.

    Attributes:
        stop: the end of the count.
        start: its begin; ``None`` for 0.
        counter: the name that counts; ``""`` for none.
        rows: the slices taken.
        backwards: whether the last comes first.
        setup: names for expressions that the loop runs over → their code.
    """

    stop: ast.expr
    start: ast.expr | None = None
    counter: str = ""
    rows: tuple[Row, ...] = ()
    backwards: bool = False
    setup: tuple[tuple[str, str], ...] = ()

    def count(self, dispatch: str) -> str:
        """How many steps there are, as code."""
        count = self.stop if self.start is None else ast.BinOp(self.stop, ast.Sub(), self.start)
        return ast.unparse(_Lengths(dispatch).visit(copy.deepcopy(count)))

    def first(self, dispatch: str) -> str:
        """The least index, as code."""
        start = ast.Constant(0) if self.start is None else copy.deepcopy(self.start)
        return ast.unparse(_Lengths(dispatch).visit(start))


def steps_of(statement: ast.For) -> Steps | None:
    """The steps of a loop, or ``None`` where it is none over a range or slices of tensors.

    It may be over ``range``, ``x``, ``x[1:]``, ``x.unbind(d)``, ``torch.unbind(x, d)``; several of
    the last in ``zip``; ``enumerate`` or ``reversed`` of them. A tensor that has no name gets one.
    """
    target, over, counter, backwards = statement.target, statement.iter, "", False
    if statement.orelse:
        return None
    match over:
        case ast.Call(ast.Name("reversed"), [inner], []):
            over, backwards = inner, True
        case ast.Call(ast.Name("enumerate"), [inner], []):
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                return None
            number, target = target.elts
            if not isinstance(number, ast.Name):
                return None
            over, counter = inner, number.id
    match target, over:
        case ast.Name(id=name), ast.Call(ast.Name("range"), bounds, []) if not counter:
            return _counted(name, bounds, backwards)
        case ast.Tuple(targets), ast.Call(ast.Name("zip"), sources, _) if not backwards:
            return _taken(statement, targets, sources, counter, backwards)
    return _taken(statement, [target], [over], counter, backwards)


def _counted(counter: str, bounds: Sequence[ast.expr], backwards: bool) -> Steps | None:
    if any(isinstance(bound, ast.Starred) for bound in bounds):
        return None
    match bounds:
        case [stop]:
            return Steps(stop, counter=counter, backwards=backwards)
        # One below 0 would begin at the end of the axis.
        case [start, stop] if not isinstance(start, ast.UnaryOp):
            return Steps(stop, start, counter, backwards=backwards)
        case [last, ast.UnaryOp(ast.USub(), ast.Constant(1)),
              ast.UnaryOp(ast.USub(), ast.Constant(1))]:  # fmt: skip
            end = ast.BinOp(last, ast.Add(), ast.Constant(1))
            return Steps(end, counter=counter, backwards=not backwards)
    return None


def _taken(
    statement: ast.For,
    targets: Sequence[ast.expr],
    sources: Sequence[ast.expr],
    counter: str,
    backwards: bool,
) -> Steps | None:
    rows, setup = [], []
    for place, (target, source) in enumerate(zip(targets, sources, strict=False)):
        tensor, axis = _tensor_of(source)
        if not isinstance(target, ast.Name) or tensor is None:
            return None
        over = tensor.id if isinstance(tensor, ast.Name) else f"_over_{statement.lineno}_{place}"
        if over.startswith("_over_"):
            setup.append((over, ast.unparse(tensor)))
        rows.append(Row(target.id, over, axis))
    if len(targets) != len(sources) or not rows:
        return None
    first = rows[0]
    along = [] if first.axis == "0" else [ast.parse(first.axis, mode="eval").body]
    length = ast.Call(ast.Name("len", ast.Load()), [ast.Name(first.over, ast.Load()), *along], [])
    return Steps(length, None, counter, tuple(rows), backwards, tuple(setup))


def _tensor_of(source: ast.expr) -> tuple[ast.expr | None, str]:
    """The tensor whose slices an expression gives, and their axis as code."""
    match source:
        case ast.Name() | ast.Subscript(value=ast.Name(), slice=ast.Slice() | ast.Tuple()):
            return source, "0"
        case ast.Call(ast.Attribute(ast.Name("torch"), "unbind"), [tensor, *axis], keywords):
            pass
        case ast.Call(ast.Attribute(tensor, "unbind"), axis, keywords):
            pass
        case _:
            return None, ""
    given = [*axis, *(keyword.value for keyword in keywords if keyword.arg == "dim")]
    if len(given) != len(axis) + len(keywords) or len(given) > 1:
        return None, ""
    return tensor, ast.unparse(given[0]) if given else "0"


class _Lengths(ast.NodeTransformer):
    """Asks for the length of a tensor without making a number of it."""

    def __init__(self, dispatch: str) -> None:
        self.dispatch = dispatch

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("len"), [ast.Name(), *_], []):
                node.func = ast.parse(f"{self.dispatch}.length", mode="eval").body
        return node
