"""Rewrite single constructs of a function, or note why they stay as they are."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchferry.capturer.rewrite.code_text import condition_text, expression, place
from torchferry.capturer.rewrite.names import (
    DISPATCH,
    NOW,
    OWN,
    assigned,
    captured_within,
    obstacle,
)
from torchferry.capturer.rewrite.steps import over_text
from torchferry.values.source_line import LIMIT

__all__ = ["Constructs", "Refusal"]


_CONSUMERS = {"all": "every", "any": "some", "list": "listed", "max": "greatest", "min": "least",
              "sum": "total", "tuple": "listed"}  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """A construct that was left as it is.

    Attributes:
        where: ``file:line``.
        line: its first line of code.
        reason: why.
        last: the number of its last line.
    """

    where: str
    line: str
    reason: str
    last: int = 0

    def has(self, file: str, number: int) -> bool:
        """Whether a line is within it."""
        own, _, first = self.where.rpartition(":")
        return own == file and int(first) <= number <= max(self.last, int(first))

    def __str__(self) -> str:
        return f"{self.where}: {self.line}: {self.reason}"


@dataclass
class Constructs:
    """The constructs of one function.

    Attributes:
        function: it is changed in place.
        file: where it stands.
        leave: ``file:line`` of constructs to leave as they are → why.
        shadowed: names of built-in functions that mean something else where the function stands.
        count: how many constructs were rewritten.
        refused: those left as they are.
        places: ``file:line`` of those that were rewritten.
        lasts: ``file:line`` of all constructs → the number of the last line that they decide.
    """

    function: ast.FunctionDef
    file: str
    leave: Mapping[str, str] = field(default_factory=dict)
    shadowed: Collection[str] = ()
    count: int = 0
    refused: list[Refusal] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    lasts: dict[str, int] = field(default_factory=dict)

    def rewrite_checks(self) -> None:
        """Rewrite ``if ...: raise`` and ``assert`` wherever they stand, and no more."""
        _Checks(self.check).visit(self.function)
        ast.fix_missing_locations(self.function)

    def rewrite_expressions(self) -> None:
        """Rewrite every ``a if test else b``, and lists of what a loop in brackets gives."""
        _Expressions(self.conditional, self.comprehension, self.shadowed).visit(self.function)

    def span(self, statement: ast.stmt, last: ast.stmt) -> None:
        """Note the last statement that a construct decides."""
        where = f"{self.file}:{statement.lineno}"
        self.lasts[where] = last.end_lineno or statement.lineno

    def note(self, node: ast.stmt | ast.expr, reason: str) -> None:
        """Note that a construct is left as it is."""
        text = ast.unparse(node).splitlines()[0][:LIMIT]
        where = f"{self.file}:{node.lineno}"
        refusal = Refusal(where, text, reason, node.end_lineno or 0)
        if refusal not in self.refused:
            self.refused.append(refusal)

    def replace(self, statement: ast.stmt, text: str) -> list[ast.stmt]:
        """Code in place of a statement, with its line number."""
        self.count += 1
        self.places.add(f"{self.file}:{statement.lineno}")
        new = ast.parse(textwrap.dedent(text)).body
        for top in new:
            place(top, statement)
        return new

    def check(self, statement: ast.If | ast.Assert) -> list[ast.stmt]:
        """``if ...: raise`` or ``assert`` as a check when the graph runs."""
        line, test = statement.lineno, statement.test
        if isinstance(statement, ast.If):
            failed = statement.body[0]
        else:
            failed = ast.parse(f"raise AssertionError({_message(statement)})").body[0]
            test = ast.UnaryOp(ast.Not(), test)
        return self.replace(
            statement,
            f"def _fail_{line}():\n    {ast.unparse(failed)}\n"
            f"{DISPATCH}.check({condition_text(test)}, _fail_{line})",
        )

    def conditional(self, node: ast.IfExp) -> ast.expr:
        """``a if test else b`` as a choice between two functions without arguments."""
        reason = self.obstacle(node, [node])
        if reason:
            self.note(node, reason)
            return node
        sides = (f"lambda {OWN}: ({ast.unparse(side)},)" for side in (node.body, node.orelse))
        text = f"{DISPATCH}.choose({condition_text(node.test)}, {', '.join(sides)})[0]"
        self.count += 1
        where = f"{self.file}:{node.lineno}"
        self.places.add(where)
        self.lasts.setdefault(where, node.end_lineno or node.lineno)
        return expression(text, node)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        """``[f(row) for row in x]`` as a call of ours, if a size may say how often."""
        first, *others = node.generators
        over = (
            "" if others or first.ifs or first.is_async else over_text(first.iter, self.shadowed)
        )
        target = first.target
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not over or obstacle([node.elt]) or not all(isinstance(n, ast.Name) for n in names):
            return node
        entry = (
            condition_text(node.elt)
            if isinstance(node, ast.GeneratorExp)
            else ast.unparse(node.elt)
        )
        if isinstance(target, ast.Tuple):
            entry = f"(lambda {', '.join(map(ast.unparse, names))}, *{NOW}: {entry})(*{NOW})"
        else:
            entry = f"(lambda {ast.unparse(target)}, *{NOW}: {entry})({NOW})"
        self.count += 1
        where = f"{self.file}:{node.lineno}"
        self.places.add(where)
        self.lasts.setdefault(where, node.end_lineno or node.lineno)
        return expression(f"{DISPATCH}.collect({over}, lambda {NOW}: {entry})", node)

    def obstacle(
        self, node: ast.stmt | ast.expr, body: Sequence[ast.AST], lists: Collection[str] = ()
    ) -> str:
        """Why a construct cannot be functions, or ``""``."""
        reason = self.leave.get(f"{self.file}:{node.lineno}") or obstacle(body, lists)
        if not reason and isinstance(node, ast.stmt):
            name = captured_within(self.function, assigned([node]))
            reason = f"a function within reads {name}, which it sets" if name else ""
        return reason


class _Expressions(ast.NodeTransformer):
    """Replaces conditional expressions and comprehensions, the inner ones first."""

    def __init__(
        self,
        conditional: Callable[[ast.IfExp], ast.expr],
        comprehension: Callable[[ast.ListComp | ast.GeneratorExp], ast.expr],
        shadowed: Collection[str],
    ) -> None:
        self.conditional, self.comprehension = conditional, comprehension
        self.shadowed = shadowed

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        return self.conditional(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        self.generic_visit(node)
        return self.comprehension(node)

    def visit_Call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(ast.Name(id=name), [values, *_], []) if (
                name in _CONSUMERS and name not in self.shadowed
            ):
                self.generic_visit(node)
                if isinstance(values, ast.GeneratorExp):
                    node.args[0] = self.comprehension(values)
                if len(node.args) == 1 or name == "sum":
                    function = f"{DISPATCH}.{_CONSUMERS[name]}"
                    node.func = expression(function, node.func)
                return node
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(tensor, "item"), [], []):
                return expression(f"{DISPATCH}.read({ast.unparse(tensor)})", node)
            case ast.Call(ast.Name("float" | "bool" as kind), [tensor], []):
                return expression(f"{DISPATCH}.read({ast.unparse(tensor)}, {kind})", node)
        return node


class _Checks(ast.NodeTransformer):
    """Replaces every check, in whatever it stands."""

    def __init__(self, check_of: Callable[[ast.If | ast.Assert], list[ast.stmt]]) -> None:
        self.check_of = check_of

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
            return [*self.check_of(node), *node.orelse]
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        return self.check_of(node)


def _message(statement: ast.Assert) -> str:
    return "" if statement.msg is None else ast.unparse(statement.msg)
