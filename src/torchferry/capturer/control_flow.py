"""Ifs, loops and checks of a function as calls of `torchferry.capturer.dispatch`, by its AST.

Only what is certain is rewritten: what is done to local names. A break, or an attribute that is
set under the construct, leaves it as it is, with the reason. What names share a tensor is known
only in the captured program: see `torchferry.capturer.aliases`.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchferry.capturer.names import (
    BUILT_IN,
    DISPATCH,
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
from torchferry.capturer.recurrence import Recurrence
from torchferry.capturer.steps import steps_of
from torchferry.values.source_line import LIMIT

__all__ = ["Refusal", "Rewriter"]

_NO_STEPS = "only a loop over a range, or over the slices of tensors, becomes a scan"


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
        lasts: ``file:line`` of all constructs → the number of the last line that they decide.
    """

    function: ast.FunctionDef
    file: str
    only_checks: bool = False
    leave: Mapping[str, str] = field(default_factory=dict)
    shadowed: Collection[str] = ()
    count: int = 0
    refused: list[Refusal] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    lasts: dict[str, int] = field(default_factory=dict)

    def rewrite(self) -> None:
        """Change the function's body."""
        if self.only_checks:
            _Checks(self._check_of).visit(self.function)
            ast.fix_missing_locations(self.function)
            return
        self.looped: set[str] = set()  # what a loop around carries: its next step reads it
        self.depth = 0  # of constructs that are functions now
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
            if isinstance(statement, ast.If | ast.While | ast.For):
                last = rest[-1] if rest and _may_return(statement) else statement
                where = f"{self.file}:{statement.lineno}"
                self.lasts[where] = last.end_lineno or statement.lineno
            match statement:
                case ast.If(body=[ast.Raise()], orelse=[]) | ast.Assert():
                    result += self._check_of(statement)
                case ast.If() if sides := _returning_sides(statement, rest):
                    return [*result, *self._returning(statement, sides, rest, bound)]
                case ast.If():
                    result += self._if(statement, bound)
                case ast.While():
                    result += self._while(statement, bound)
                case ast.For():
                    result += self._for(statement, body[:number], rest, bound)
                case ast.FunctionDef():
                    result.append(statement)
                    self._within(statement)
                    bound.add(statement.name)
                case ast.With() | ast.Try():
                    result.append(self._inside(statement, bound))
                case ast.Assign([ast.Subscript(value=inner)], value) if self.depth:
                    # A constant tensor within a graph's branch stops torch.
                    value = f"{DISPATCH}.number({ast.unparse(value)}, {ast.unparse(inner)})"
                    statement.value = _expression(value, statement)
                    result.append(statement)
                case _:
                    result.append(statement)
                    bound |= assigned([statement])
        return result

    def _side(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """The statements of a function that stands for a side of an if, or for a loop's body."""
        self.depth += 1
        try:
            return self._block(body, set(bound))
        finally:
            self.depth -= 1

    def _within(self, function: ast.FunctionDef) -> None:
        """Rewrite a function that is defined in this one."""
        inner = Rewriter(function, self.file, False, self.leave, self.shadowed)
        inner.refused, inner.places, inner.lasts = self.refused, self.places, self.lasts
        inner.rewrite()
        self.count += inner.count

    def _inside(self, statement: ast.stmt, bound: set[str]) -> ast.stmt:
        """A statement that stays as it is, with the constructs in it rewritten."""
        again = isinstance(statement, ast.For | ast.While)
        bound = bound | (assigned([statement.target]) if isinstance(statement, ast.For) else set())
        outer, self.looped = self.looped, self.looped | (read([statement]) if again else set())
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(statement, name, []):
                setattr(statement, name, self._block(block, set(bound)))
        for handler in getattr(statement, "handlers", []):
            handler.body = self._block(handler.body, set(bound))
        self.looped = outer
        return statement

    def _refuse(
        self, statement: ast.stmt, reason: str, bound: set[str], *, inside: bool = True
    ) -> list[ast.stmt]:
        self._note(statement, reason)
        before = len(self.refused)
        stays = self._inside(statement, bound) if inside else statement
        # The same reason once more says nothing.
        new = [refusal for refusal in self.refused[before:] if refusal.reason != reason]
        self.refused[before:] = new
        return [stays]

    def _note(self, node: ast.stmt | ast.expr, reason: str) -> None:
        text = ast.unparse(node).splitlines()[0][:LIMIT]
        where = f"{self.file}:{node.lineno}"
        refusal = Refusal(where, text, reason, node.end_lineno or 0)
        if refusal not in self.refused:
            self.refused.append(refusal)

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
        return _expression(text, node)

    def _if(self, statement: ast.If, bound: set[str]) -> list[ast.stmt]:
        body = [*statement.body, *statement.orelse]
        reason = self._obstacle(statement, [statement.test, *body])
        changed = changed_in_place(body) & bound
        then, other = assigned(statement.body) | changed, assigned(statement.orelse) | changed
        outside = read_outside(self.function, statement) | self.looped | changed
        names = sorted((then | other) & outside)
        unset = [name for name in names if name not in bound and name not in then & other]
        if unset:
            reason = reason or f"{unset[0]} is set on one side only"
        if reason or not names:
            reason = reason or "it sets no name that is used afterwards"
            return self._refuse(statement, reason, bound)
        line = statement.lineno
        text = ""
        for title, side in (("_then", statement.body), ("_else", statement.orelse)):
            inner = [*self._own(side, bound), *self._side(side, bound)]
            text += _function(f"{title}_{line}", self._kept(side, bound), inner, names)
        written = _written(names, only_changed(body) & bound)
        bound |= set(names)
        call = f"{DISPATCH}.choose({_test(statement.test)}, _then_{line}, _else_{line}{written})"
        return self._made(statement, f"{text}{_list(names)} = {call}")

    def _returning(
        self,
        statement: ast.If,
        sides: Sequence[list[ast.stmt]],
        rest: list[ast.stmt],
        bound: set[str],
    ) -> list[ast.stmt]:
        reason = self._obstacle(
            statement, [statement.test, *_without_returns([*sides[0], *sides[1]])]
        )
        if reason or not _alike(sides):
            refused = self._refuse(statement, reason or "its sides return unlike values", bound)
            return [*refused, *self._block(rest, bound)]
        line = statement.lineno
        text = ""
        for title, side in zip(("_then", "_else"), sides, strict=True):
            inner = [*self._own(side, bound), *self._side(side, bound)]
            text += _function(f"{title}_{line}", self._kept(side, bound), inner)
        call = f"{DISPATCH}.decide({_test(statement.test)}, _then_{line}, _else_{line})"
        return self._made(statement, f"{text}return {call}")

    def _kept(self, body: Sequence[ast.stmt], bound: set[str]) -> list[str]:
        """Parameters: a name set within is local there, and begins with what it is outside."""
        names = (assigned(body) | changed_in_place(body)) & bound
        return [OWN, *(f"{name}={name}" for name in sorted(names))]

    def _own(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        changed = sorted(changed_in_place(body) & bound)
        return ast.parse("\n".join(f"{name} = {OWN}({name})" for name in changed)).body

    def _while(self, statement: ast.While, bound: set[str]) -> list[ast.stmt]:
        used = read_outside(self.function, statement) | read([statement]) | self.looped
        changed = changed_in_place(statement.body) & bound
        names = sorted((assigned(statement.body) & used) | changed)
        unset = [name for name in names if name not in bound]
        reason = self._obstacle(statement, [statement.test, *statement.body])
        reason = reason or ("it has an else" if statement.orelse else "")
        if unset:
            reason = reason or f"{unset[0]} is not set before it"
        if reason or not names:
            return self._refuse(statement, reason or "it sets no name that is read", bound)
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
            return self._refuse(statement, f"{min(over)} is not the built-in function here", bound)
        steps = steps_of(statement)
        if steps is None:  # loops over lists of modules and the like are Python's
            return self._refuse(statement, _NO_STEPS, bound)
        used = read([statement]) | read_outside(self.function, statement) | self.looped
        loop = Recurrence(statement, steps, assigned(statement.body), used, before)
        reason = self._obstacle(statement, loop.kept) or loop.obstacle(bound, rest, self.function)
        if loop.collected and "torch" in self.shadowed:
            reason = reason or "torch is not the module here"
        if reason:
            return self._refuse(statement, reason, bound)
        loop.body = self._looped(loop.body, loop.carried, bound | {*loop.targets})
        written = _written(loop.carried, only_changed(statement.body))
        self._inside(statement, bound)  # it runs as it was where nothing is symbolic
        for later in rest:
            loop.join(later)
        return self._made(statement, loop.text(written))

    def _looped(
        self, body: Sequence[ast.stmt], carried: Sequence[str], bound: set[str]
    ) -> list[ast.stmt]:
        """The body of a loop: what it carries is read again in its next step."""
        outer, self.looped = self.looped, self.looped | {*carried}
        try:
            return self._side(body, bound)
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


def _expression(text: str, original: ast.stmt | ast.expr) -> ast.expr:
    """An expression as text, on the line of what it replaces."""
    expression = ast.parse(text, mode="eval").body
    _place(expression, original)
    return expression


def _place(made: ast.stmt | ast.expr, original: ast.stmt | ast.expr) -> None:
    """Put all of it on the first line of the original, which is what a traceback then shows."""
    for node in ast.walk(made):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
            node.lineno = node.end_lineno = original.lineno
            node.col_offset = node.end_col_offset = original.col_offset


def _function(
    title: str,
    parameters: Sequence[str],
    body: Sequence[ast.stmt],
    values: Sequence[str] | None = None,
) -> str:
    """A function as text, that returns values, or as its body does."""
    inner = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in body)
    text = inner if values is None else f"{inner}\nreturn {_list(values)}"
    return f"def {title}({', '.join(parameters)}):\n{textwrap.indent(text, '    ')}\n"


def _test(test: ast.expr) -> str:
    """A condition as text; ``not``, ``and`` and ``or`` would ask a tensor for its value."""
    match test:
        case ast.UnaryOp(ast.Not(), operand):
            return f"{DISPATCH}.invert({_test(operand)})"
        case ast.BoolOp(operator, [first, *others]):
            name = "both" if isinstance(operator, ast.And) else "either"
            text = _test(first)
            for other in others:
                text = f"{DISPATCH}.{name}({text}, lambda: {_test(other)})"
            return text
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
    """Whether statements always end with a return of a value."""
    match body[-1] if body else None:
        case ast.Return(value=value):
            return value is not None
        case ast.If(body=then, orelse=other):
            return _returns(then) and _returns(other)
    return False


def _returning_sides(statement: ast.If, rest: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Both sides of an if that returns somewhere, with what follows; none if one may not return.

    ``if a: return b`` and the statements after it are the two sides.
    """
    if not _may_return(statement):
        return []
    sides = [
        side if _returns(side) else [*side, *copy.deepcopy(list(rest))]
        for side in (statement.body, statement.orelse)
    ]
    return sides if all(map(_returns, sides)) else []


def _may_return(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return():
            return True
        case ast.If(body=then, orelse=other):
            return any(map(_may_return, [*then, *other]))
    return False


def _without_returns(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements whose returns, but for those within loops, are expressions."""
    result: list[ast.stmt] = []
    for statement in body:
        match statement:
            case ast.Return(value=value):
                result.append(ast.Expr(value or ast.Constant(None)))
            case ast.If(test, then, other):
                sides = [*_without_returns(then), *_without_returns(other)]
                result += [ast.Expr(test), *sides]
            case _:
                result.append(statement)
    return result


def _alike(sides: Sequence[Sequence[ast.stmt]]) -> bool:
    """Whether the sides return as many values, as far as one can read."""
    values = [side[-1].value for side in sides if isinstance(side[-1], ast.Return)]
    counts = {len(value.elts) if isinstance(value, ast.Tuple) else None for value in values}
    return len(counts) < 2
