"""A loop as a step that `dispatch.loop` runs, if a size says how often."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from torchferry.capturer.rewrite.code_text import names_text
from torchferry.capturer.rewrite.names import (
    DISPATCH,
    appended,
    assigned,
    changed_in_place,
    is_read_first,
    only_changed,
)

__all__ = ["Recurrence", "carried_names"]


@dataclass(frozen=True)
class _Written:
    """``y[:, t] = value`` in a loop that does nothing else with y.

    Attributes:
        name: y.
        axis: the axis that t stands for.
        value: what is written.
    """

    name: str
    axis: int
    value: ast.expr


def carried_names(body: Sequence[ast.stmt], outside: set[str]) -> list[str]:
    """The names that one round of a loop leaves to the next, or to what follows.

    Args:
        body: of the loop.
        outside: the names that are read elsewhere.
    """
    changed = changed_in_place(body)
    names = {name for name in assigned(body) - changed
             if name in outside or is_read_first(body, name)}  # fmt: skip
    return sorted(names | changed)


class Recurrence:
    """The parts of a loop.

    Args:
        loop: it; without break and continue.
        outside: the names that are read elsewhere.
        bound: those that are certainly set before it.

    Attributes:
        lists: the names of lists that it only appends to.
        carried: the names that a step leaves to the next, or to what follows.
        body: of a step.
        filled: the names of all lists that a step is given.
        targets: the names that an item gets.
    """

    def __init__(self, loop: ast.For, outside: set[str], bound: set[str]) -> None:
        self.loop, self.bound = loop, bound
        body = [_Extend().visit(copy.deepcopy(one)) for one in loop.body]
        self.lists = sorted(appended(body) - assigned(body))
        self.written: list[_Written] = []
        body = [self._collect(one) for one in body]
        self.targets = assigned([ast.Expr(loop.target)])
        self.filled = [*self.lists, *self._kept]
        self.carried = [name for name in carried_names([*self._begin(), *body], outside)
                        if name not in self.filled]  # fmt: skip
        self.body = body

    @property
    def _kept(self) -> list[str]:
        return [f"_kept_{self.loop.lineno}_{n}" for n, _ in enumerate(self.written)]

    def _begin(self) -> list[ast.stmt]:
        begin: list[ast.stmt] = ast.parse("x = _now").body
        if isinstance(begin[0], ast.Assign):
            begin[0].targets = [self.loop.target]
        return begin

    def _collect(self, statement: ast.stmt) -> ast.stmt:
        """``y[:, t] = value`` as an entry of a list, which fills y after the loop."""
        match statement:
            case ast.Assign([ast.Subscript(value=ast.Name(id=name)) as target], value):
                axis = _axis_of(target, _counter_of(self.loop.target))
                if axis is None or sum(_is_name(one, name) for one in ast.walk(self.loop)) != 1:
                    return statement
                kept = f"_kept_{self.loop.lineno}_{len(self.written)}"
                self.written.append(_Written(name, axis, value))
                entry = f"{DISPATCH}.entry({name}, {axis}, {ast.unparse(value)})"
                return ast.parse(f"{kept}.append({entry})").body[0]
        return statement

    def text(self, over: str) -> str:
        """The code in its place.

        Args:
            over: what it runs over, as code.
        """
        line, kept = self.loop.lineno, self._kept
        lists, inner = self.filled, [*self._begin(), *self.body]
        changed = only_changed(self.loop.body)
        places = ", ".join(
            f"{n}: {name}" for n, name in enumerate(self.carried) if name in changed
        )
        step = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in inner)
        names = names_text(self.carried)
        given = f"_over_{line}, _step_{line}, {names}, {names_text(lists)}, {{{places}}}"
        call = f"{DISPATCH}.loop({given})"
        scan = [
            *(f"try:\n    {name}\nexcept NameError:\n    {name} = {DISPATCH}.UNSET"
              for name in self.carried if name not in self.bound),
            *(f"{name} = []" for name in kept),
            f"def _step_{line}({', '.join(['_now', *lists, *self.carried])}):",
            textwrap.indent(f"{step}\nreturn {names}", "    "),
            f"{names_text([*lists, *self.carried])} = {call}",
            *(f"{DISPATCH}.fill({one.name}, {one.axis}, _over_{line}, {name})"
              for one, name in zip(self.written, kept, strict=True)),
        ]  # fmt: skip
        plain = copy.copy(self.loop)
        plain.iter = ast.Name(f"_over_{line}", ast.Load())
        return "\n".join([
            f"_over_{line} = {over}",
            f"if {DISPATCH}.is_walk(_over_{line}):",
            textwrap.indent("\n".join(scan), "    "),
            f"else:\n{textwrap.indent(ast.unparse(ast.fix_missing_locations(plain)), '    ')}\n",
        ])  # fmt: skip


class _Extend(ast.NodeTransformer):
    """``y += [a]`` as ``y.extend([a])``, which is the same object afterwards."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        match node:
            case ast.AugAssign(ast.Name(id=name), ast.Add(), ast.List() as values):
                call = ast.parse(f"{name}.extend({ast.unparse(values)})").body[0]
                return ast.copy_location(call, node)
        return node


def _counter_of(target: ast.expr) -> str:
    """The name that may count: ``t``, or ``t`` in ``t, row``."""
    match target:
        case ast.Name(id=name) | ast.Tuple([ast.Name(id=name), _]):
            return name
    return ""


def _axis_of(node: ast.Subscript, counter: str) -> int | None:
    """The axis that ``x[:, t]`` picks a slice of; ``None`` where it does more."""
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    places = [place for place, inner in enumerate(index) if _is_name(inner, counter)]
    whole = [inner for inner in index if isinstance(inner, ast.Slice)
             and not (inner.lower or inner.upper or inner.step)]  # fmt: skip
    return places[0] if len(places) == 1 and len(whole) == len(index) - 1 else None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
