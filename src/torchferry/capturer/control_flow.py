"""Ifs, loops and checks of a function as calls of `torchferry.capturer.dispatch`, by its AST.

Only what is certain is rewritten: assignments of local names. A break, an attribute or an item
that is set under the construct leaves it as it is, with the reason. What names share a tensor is
known only in the captured program: see `torchferry.capturer.aliases`.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchferry.capturer.names import (
    BUILT_IN,
    OWN,
    assigned,
    captured_within,
    changed_in_place,
    loads,
    obstacle,
    only_changed,
    read,
    read_outside,
)
from torchferry.capturer.recurrence import Recurrence, appended
from torchferry.capturer.steps import steps_of
from torchferry.values.source_line import LIMIT

__all__ = ["DISPATCH", "Refusal", "Rewriter"]

DISPATCH = "_torchferry_dispatch"
"""What the module `torchferry.capturer.dispatch` is called in rewritten code."""

_NO_STEPS = "only a loop over range(n), range(m, n), x or enumerate(x) becomes a scan"


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
class Rewriter:
    """Rewrites the body of one function.

    Attributes:
        function: it is changed in place.
        file: where it stands.
        only_checks: rewrite ``if ...: raise`` and ``assert`` wherever they stand, and no more.
        leave: ``file:line`` of constructs to leave as they are → why.
        shadowed: names of built-in functions that mean something else where the function stands.
        count: how many constructs were rewritten.
        refused: those left as they are.
        places: ``file:line`` of those that were rewritten.
    """

    function: ast.FunctionDef
    file: str
    only_checks: bool = False
    leave: Mapping[str, str] = field(default_factory=dict)
    shadowed: Collection[str] = ()
    count: int = 0
    refused: list[Refusal] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def rewrite(self) -> None:
        """Change the function's body."""
        if self.only_checks:
            _Checks(self._check_of).visit(self.function)
            ast.fix_missing_locations(self.function)
            return
        self.looped: set[str] = set()  # what a loop around carries: its next step reads it
        arguments = (node for node in ast.walk(self.function.args) if isinstance(node, ast.arg))
        bound = {argument.arg for argument in arguments}
        self.shadowed = {*self.shadowed, *bound, *assigned(self.function.body)} & BUILT_IN
        _Conditional(self._conditional).visit(self.function)
        self.function.body = self._block(self.function.body, bound)
        ast.fix_missing_locations(self.function)

    def _block(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """Statements in order; ``bound`` grows by the names that are certainly set."""
        result: list[ast.stmt] = []
        for number, statement in enumerate(body):
            rest = list(body[number + 1 :])
            match statement:
                case ast.If(body=[ast.Raise()], orelse=[]) | ast.Assert():
                    result += self._check_of(statement)
                case ast.If() if _returns(statement.body) and _returns(statement.orelse or rest):
                    return [*result, *self._returning(statement, statement.orelse or rest, bound)]
                case ast.If():
                    result += self._if(statement, bound)
                case ast.While():
                    result += self._while(statement, bound)
                case ast.For():
                    result += self._for(statement, body[:number], rest, bound)
                case _:
                    result.append(statement)
                    if not isinstance(statement, ast.Try | ast.With):
                        bound |= assigned([statement])
        return result

    def _refuse(self, statement: ast.stmt, reason: str) -> list[ast.stmt]:
        self._note(statement, reason)
        return [statement]

    def _note(self, node: ast.stmt | ast.expr, reason: str) -> None:
        text = ast.unparse(node).splitlines()[0][:LIMIT]
        where = f"{self.file}:{node.lineno}"
        self.refused.append(Refusal(where, text, reason, node.end_lineno or 0))

    def _made(self, statement: ast.stmt, text: str) -> list[ast.stmt]:
        """Code in place of a statement, with its line number."""
        self.count += 1
        self.places.add(f"{self.file}:{statement.lineno}")
        made = ast.parse(textwrap.dedent(text)).body
        for top in made:
            _place(top, statement)
        return made

    def _check_of(self, statement: ast.If | ast.Assert) -> list[ast.stmt]:
        line, test = statement.lineno, statement.test
        if isinstance(statement, ast.If):
            failed = statement.body[0]
        else:
            failed = ast.parse(f"raise AssertionError({_message(statement)})").body[0]
            test = ast.UnaryOp(ast.Not(), test)
        return self._made(
            statement,
            f"def _fail_{line}():\n    {ast.unparse(failed)}\n"
            f"{DISPATCH}.check({_test(test)}, _fail_{line})",
        )

    def _conditional(self, node: ast.IfExp) -> ast.expr:
        """``a if test else b`` as a choice between two functions without arguments."""
        reason = self._obstacle(node, [node])
        if reason:
            self._note(node, reason)
            return node
        sides = (f"lambda {OWN}: ({ast.unparse(side)},)" for side in (node.body, node.orelse))
        text = f"{DISPATCH}.choose({_test(node.test)}, {', '.join(sides)})[0]"
        self.count += 1
        self.places.add(f"{self.file}:{node.lineno}")
        made = ast.parse(text, mode="eval").body
        _place(made, node)
        return made

    def _if(self, statement: ast.If, bound: set[str]) -> list[ast.stmt]:
        body = [*statement.body, *statement.orelse]
        reason = self._obstacle(statement, [statement.test, *body])
        then, other = assigned(statement.body), assigned(statement.orelse)
        outside = read_outside(self.function, statement) | self.looped | changed_in_place(body)
        names = sorted((then | other) & outside)
        unset = [name for name in names if name not in bound and name not in then & other]
        if unset:
            reason = reason or f"{unset[0]} is set on one side only"
        if reason or not names:
            return self._refuse(statement, reason or "it sets no name that is used afterwards")
        text = self._branch(f"_then_{statement.lineno}", statement.body, names, bound)
        text += self._branch(f"_else_{statement.lineno}", statement.orelse, names, bound)
        written = _written(names, only_changed(body) & bound)
        bound |= set(names)
        return self._made(statement, f"{text}{_list(names)} = {self._choice(statement, written)}")

    def _returning(
        self, statement: ast.If, other: list[ast.stmt], bound: set[str]
    ) -> list[ast.stmt]:
        last = [statement.body[-1], other[-1]]
        inside = [*statement.body[:-1], *other[:-1], *(_value(one) for one in last)]
        reason = self._obstacle(statement, [statement.test, *inside])
        values = [_returned(statement.body), _returned(other)]
        tuples = {isinstance(_value(one), ast.Tuple) for one in last}
        if reason or len(tuples) > 1 or len(values[0]) != len(values[1]):
            remaining = [] if statement.orelse else other
            refused = self._refuse(statement, reason or "its sides return unlike values")
            return [*refused, *self._block(remaining, bound)]
        text = ""
        for title, body, value in zip(("_then", "_else"), (statement.body, other), values,
                                      strict=True):  # fmt: skip
            text += self._branch(f"{title}_{statement.lineno}", body[:-1], value, bound)
        item = "" if tuples == {True} else "[0]"
        return self._made(statement, f"{text}return {self._choice(statement)}{item}")

    def _choice(self, statement: ast.If, written: str = "") -> str:
        line = statement.lineno
        return f"{DISPATCH}.choose({_test(statement.test)}, _then_{line}, _else_{line}{written})"

    def _branch(
        self, title: str, body: Sequence[ast.stmt], values: Sequence[str], bound: set[str]
    ) -> str:
        # A name set within is local there: it begins with what it is outside.
        kept = [f"{name}={name}" for name in sorted(assigned(body) & bound)]
        changed = sorted(changed_in_place(body) & bound)
        own = ast.parse("\n".join(f"{name} = {OWN}({name})" for name in changed)).body
        inner = self._block(body, set(bound))
        return _function(title, [OWN, *kept], [*own, *inner], values)

    def _while(self, statement: ast.While, bound: set[str]) -> list[ast.stmt]:
        used = read_outside(self.function, statement) | read([statement]) | self.looped
        names = sorted(assigned(statement.body) & used)
        unset = [name for name in names if name not in bound]
        reason = self._obstacle(statement, [statement.test, *statement.body])
        reason = reason or ("it has an else" if statement.orelse else "")
        if unset:
            reason = reason or f"{unset[0]} is not set before it"
        if reason or not names:
            return self._refuse(statement, reason or "it sets no name that is read")
        line, inner = statement.lineno, self._looped(statement.body, names, bound)
        written = _written(names, only_changed(statement.body))
        text = _function(f"_body_{line}", names, inner, names)
        text += f"def _test_{line}({', '.join(names)}):\n    return {_test(statement.test)}\n"
        call = f"{DISPATCH}.repeat(_test_{line}, _body_{line}, {_list(names)}{written})"
        return self._made(statement, f"{text}{_list(names)} = {call}")

    def _for(
        self,
        statement: ast.For,
        before: Sequence[ast.stmt],
        rest: list[ast.stmt],
        bound: set[str],
    ) -> list[ast.stmt]:
        over = {name.id for name in loads(statement.iter)} & {*self.shadowed}
        if over:
            return self._refuse(statement, f"{min(over)} is not the built-in function here")
        steps = steps_of(statement)
        if steps is None:  # loops over lists of modules and the like are Python's
            return self._refuse(statement, _NO_STEPS)
        used = read([statement]) | read_outside(self.function, statement) | self.looped
        loop = Recurrence(statement, steps, assigned(statement.body), used, before)
        kept = [one for one in statement.body if appended(one) is None]
        reason = self._obstacle(statement, kept) or loop.obstacle(bound, rest, self.function)
        if loop.collected and "torch" in self.shadowed:
            reason = reason or "torch is not the module here"
        if reason:
            return self._refuse(statement, reason)
        loop.body = self._looped(loop.body, loop.carried, bound | {*loop.targets})
        for later in rest:
            loop.stack(later)
        written = _written(loop.carried, only_changed(statement.body))
        return self._made(statement, loop.text(DISPATCH, written))

    def _looped(
        self, body: Sequence[ast.stmt], carried: Sequence[str], bound: set[str]
    ) -> list[ast.stmt]:
        """The body of a loop: what it carries is read again in its next step."""
        outer, self.looped = self.looped, self.looped | {*carried}
        try:
            return self._block(body, set(bound))
        finally:
            self.looped = outer

    def _obstacle(self, node: ast.stmt | ast.expr, body: Sequence[ast.AST]) -> str:
        """Why a construct cannot be functions, or ``""``."""
        reason = self.leave.get(f"{self.file}:{node.lineno}") or obstacle(body)
        if not reason and isinstance(node, ast.stmt):
            name = captured_within(self.function, assigned([node]))
            reason = f"a function within reads {name}, which it sets" if name else ""
        return reason


class _Conditional(ast.NodeTransformer):
    """Replaces every conditional expression, the inner ones first."""

    def __init__(self, made_of: Callable[[ast.IfExp], ast.expr]) -> None:
        self.made_of = made_of

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        return self.made_of(node)


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


def _place(made: ast.stmt | ast.expr, original: ast.stmt | ast.expr) -> None:
    """Put all of it on the first line of the original, which is what a traceback then shows."""
    for node in ast.walk(made):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
            node.lineno = node.end_lineno = original.lineno
            node.col_offset = node.end_col_offset = original.col_offset


def _function(
    title: str, parameters: Sequence[str], body: Sequence[ast.stmt], values: Sequence[str]
) -> str:
    inner = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in body)
    text = f"{inner}\nreturn {_list(values)}"
    return f"def {title}({', '.join(parameters)}):\n{textwrap.indent(text, '    ')}\n"


def _test(test: ast.expr) -> str:
    """A condition as text; ``not`` would ask a tensor for its value."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"{DISPATCH}.invert({_test(test.operand)})"
    return ast.unparse(test)


def _written(names: Sequence[str], changed: Collection[str]) -> str:
    """A further argument: the names that stay the tensors they are, by their position."""
    places = ", ".join(f"{n}: {name}" for n, name in enumerate(names) if name in changed)
    return f", {{{places}}}" if places else ""


def _list(names: Sequence[str]) -> str:
    return f"({', '.join(names)},)"


def _message(statement: ast.Assert) -> str:
    return "" if statement.msg is None else ast.unparse(statement.msg)


def _returns(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return) and body[-1].value is not None


def _value(statement: ast.stmt) -> ast.expr:
    """What a return gives back."""
    value = statement.value if isinstance(statement, ast.Return) else None
    return value or ast.Constant(None)


def _returned(body: Sequence[ast.stmt]) -> list[str]:
    value = _value(body[-1])
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return [ast.unparse(one) for one in values]
