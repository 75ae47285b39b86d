"""Ifs, loops and checks of a function as calls of functions that stand in `dispatch`, by its AST.

Only what is certain is rewritten: what is done to local names. A break, or an attribute that is
set under the construct, leaves it as it is, with the reason. What names share a tensor is known
only in the captured program: see `aliases`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchferry.capturer.rewrite.code_text import (
    condition_text,
    expression,
    function_text,
    names_text,
    written_text,
)
from torchferry.capturer.rewrite.constructs import Constructs
from torchferry.capturer.rewrite.names import (
    BUILT_IN,
    DISPATCH,
    OWN,
    assigned,
    called_names,
    changed_in_place,
    only_changed,
    read,
    read_outside,
)
from torchferry.capturer.rewrite.recurrence import Recurrence, carried_names
from torchferry.capturer.rewrite.returns import (
    are_alike,
    may_return,
    returning_sides,
    without_returns,
)
from torchferry.capturer.rewrite.steps import leaves_early, over_text, without_jumps

__all__ = ["Rewriter"]

_NO_STEPS = "only a loop over a range, or over the slices of tensors, becomes a scan"


class Rewriter(Constructs):
    """Rewrites the body of one function."""

    def rewrite(self) -> None:
        """Change the function's body."""
        self.looped: set[str] = set()  # what a loop around carries: its next step reads it
        self.depth = 0  # of constructs that are functions now
        arguments = (node for node in ast.walk(self.function.args) if isinstance(node, ast.arg))
        bound = {argument.arg for argument in arguments}
        self.shadowed = {*self.shadowed, *bound, *assigned(self.function.body)} & BUILT_IN
        self.rewrite_expressions()
        self.function.body = self._block(self.function.body, bound)
        ast.fix_missing_locations(self.function)

    def _block(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """Statements in order; ``bound`` grows by the names that are certainly set."""
        result: list[ast.stmt] = []
        for number, statement in enumerate(body):
            rest = list(body[number + 1 :])
            if isinstance(statement, ast.If | ast.While | ast.For):
                self.span(statement, rest[-1] if rest and may_return(statement) else statement)
            match statement:
                case ast.If(body=[ast.Raise()], orelse=[]) | ast.Assert():
                    result += self.check(statement)
                case ast.If() if sides := returning_sides(statement, rest):
                    return [*result, *self._returning(statement, sides, rest, bound)]
                case ast.If():
                    result += self._if(statement, bound)
                case ast.While():
                    result += self._while(statement, bound)
                case ast.For():
                    result += self._for(statement, bound)
                case ast.FunctionDef():
                    result.append(statement)
                    self._within(statement)
                    bound.add(statement.name)
                case ast.With() | ast.Try():
                    result.append(self._inside(statement, bound))
                case ast.Assign(
                    [ast.Subscript(value=tensor, slice=ast.Tuple(items) as index)], value
                ) if self.depth and not any(isinstance(one, ast.Slice) for one in items):
                    given = ", ".join(map(ast.unparse, (tensor, index, value)))
                    call = ast.Expr(expression(f"{DISPATCH}.put({given})", statement))
                    result.append(ast.copy_location(call, statement))
                case ast.Assign([ast.Subscript(value=tensor)], value) if self.depth:
                    # A constant tensor within a graph's branch stops torch.
                    text = f"{DISPATCH}.number({ast.unparse(value)}, {ast.unparse(tensor)})"
                    statement.value = expression(text, statement)
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
        inner = Rewriter(function, self.file, self.leave, self.shadowed)
        inner.refused, inner.places, inner.lasts = self.refused, self.places, self.lasts
        inner.rewrite()
        self.count += inner.count

    def _inside(self, statement: ast.stmt, bound: set[str]) -> ast.stmt:
        """A statement that stays as it is, with the constructs in it rewritten."""
        again = isinstance(statement, ast.For | ast.While)
        bound = bound | (
            assigned([ast.Expr(statement.target)]) if isinstance(statement, ast.For) else set()
        )
        outer, self.looped = self.looped, self.looped | (read([statement]) if again else set())
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(statement, name, []):
                setattr(statement, name, self._block(block, set(bound)))
        for handler in getattr(statement, "handlers", []):
            handler.body = self._block(handler.body, set(bound))
        self.looped = outer
        return statement

    def _refuse(self, statement: ast.stmt, reason: str, bound: set[str]) -> list[ast.stmt]:
        self.note(statement, reason)
        before = len(self.refused)
        stays = self._inside(statement, bound)
        # The same reason once more says nothing.
        new = [refusal for refusal in self.refused[before:] if refusal.reason != reason]
        self.refused[before:] = new
        return [stays]

    def _if(self, statement: ast.If, bound: set[str]) -> list[ast.stmt]:
        body = [*statement.body, *statement.orelse]
        reason = self.obstacle(statement, [statement.test, *body])
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
            text += function_text(f"{title}_{line}", self._kept(side, bound), inner, names)
        written = written_text(names, only_changed(body) & bound)
        bound |= set(names)
        test = condition_text(statement.test)
        call = f"{DISPATCH}.choose({test}, _then_{line}, _else_{line}{written})"
        return self.replace(statement, f"{text}{names_text(names)} = {call}")

    def _returning(
        self,
        statement: ast.If,
        sides: Sequence[list[ast.stmt]],
        rest: list[ast.stmt],
        bound: set[str],
    ) -> list[ast.stmt]:
        reason = self.obstacle(
            statement, [statement.test, *without_returns([*sides[0], *sides[1]])]
        )
        if reason or not are_alike(sides):
            refused = self._refuse(statement, reason or "its sides return unlike values", bound)
            return [*refused, *self._block(rest, bound)]
        line = statement.lineno
        text = ""
        for title, side in zip(("_then", "_else"), sides, strict=True):
            inner = [*self._own(side, bound), *self._side(side, bound)]
            text += function_text(f"{title}_{line}", self._kept(side, bound), inner)
        call = f"{DISPATCH}.decide({condition_text(statement.test)}, _then_{line}, _else_{line})"
        return self.replace(statement, f"{text}return {call}")

    def _kept(self, body: Sequence[ast.stmt], bound: set[str]) -> list[str]:
        """Parameters: a name set within is local there, and begins with what it is outside."""
        names = (assigned(body) | changed_in_place(body)) & bound
        return [OWN, *(f"{name}={name}" for name in sorted(names))]

    def _own(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        changed = sorted(changed_in_place(body) & bound)
        return ast.parse("\n".join(f"{name} = {OWN}({name})" for name in changed)).body

    def _outside(self, statement: ast.stmt) -> set[str]:
        """The names that are read elsewhere than in a loop."""
        return read_outside(self.function, statement) | self.looped

    def _while(self, statement: ast.While, bound: set[str]) -> list[ast.stmt]:
        line, test = statement.lineno, condition_text(statement.test)
        body, done = statement.body, f"_done_{line}"
        if breaks := leaves_early(body):
            test = f"{DISPATCH}.both({DISPATCH}.invert({done}), lambda: {test})"
        if breaks or leaves_early(body, ast.Continue):
            body = without_jumps(body, done)
        asked = [ast.Expr(statement.test), *body]
        names = carried_names(asked, self._outside(statement) | read([asked[0]]))
        unset = [name for name in names if name not in {*bound, done}]
        reason = self.obstacle(statement, asked)
        reason = reason or ("it has an else" if statement.orelse else "")
        if unset:
            reason = reason or f"{unset[0]} is not set before it"
        if reason or not names:
            return self._refuse(statement, reason or "it sets no name that is read", bound)
        names = sorted({*names, done} if breaks else names)
        inner = self._looped(body, names, bound | ({done} if breaks else set()))
        written = written_text(names, only_changed(body))
        text = f"{done} = False\n" if breaks else ""
        text += function_text(f"_body_{line}", names, inner, names)
        text += f"def _test_{line}({', '.join(names)}):\n    return {test}\n"
        call = f"{DISPATCH}.repeat(_test_{line}, _body_{line}, {names_text(names)}{written})"
        return self.replace(statement, f"{text}{names_text(names)} = {call}")

    def _for(self, statement: ast.For, bound: set[str]) -> list[ast.stmt]:
        over = over_text(statement.iter, self.shadowed)
        if not over or statement.orelse:  # loops over lists of modules and the like are Python's
            return self._refuse(statement, _NO_STEPS, bound)
        if leaves_early(statement.body):
            return self._breaking(statement, over, bound)
        if leaves_early(statement.body, ast.Continue):
            statement.body = without_jumps(statement.body, "")
        loop = Recurrence(statement, self._outside(statement), bound)
        reason = self.obstacle(statement, [statement.target, *loop.body], loop.filled)
        if called := called_names(loop.body) & loop.targets:
            reason = reason or f"{min(called)} is called"
        if not (loop.carried or loop.filled):
            reason = reason or "nothing of it is read afterwards"
        if reason:
            return self._refuse(statement, reason, bound)
        loop.body = self._looped(loop.body, loop.carried, bound | loop.targets | {*loop.filled})
        self._inside(statement, bound)  # it runs as it was where nothing is symbolic
        return self.replace(statement, loop.text(over))

    def _breaking(self, statement: ast.For, over: str, bound: set[str]) -> list[ast.stmt]:
        """A loop that breaks as one that asks whether it goes on."""
        line = statement.lineno
        names = [f"_{name}_{line}" for name in ("over", "count", "place")]
        items, count, place = names
        body = [
            *ast.parse(f"_now = {DISPATCH}.pick({items}, {place})\n{place} = {place} + 1").body,
            ast.Assign([statement.target], ast.Name("_now", ast.Load())), *statement.body,
        ]  # fmt: skip
        test = ast.parse(f"{place} < {count}", mode="eval").body
        loop = ast.copy_location(ast.While(test, body, []), statement)
        before = len(self.refused)
        for node in ast.walk(loop):
            ast.copy_location(node, statement) if not hasattr(node, "lineno") else None
        found = self._while(ast.fix_missing_locations(loop), bound | {*names})
        if len(self.refused) > before and found[0] is loop:
            return [self._inside(statement, bound)]
        begin = f"{items} = {DISPATCH}.items({over})\n{count} = {DISPATCH}.length({items})\n"
        begin += f"{place} = 0"
        return [*ast.parse(begin).body, *found]

    def _looped(
        self, body: Sequence[ast.stmt], carried: Sequence[str], bound: set[str]
    ) -> list[ast.stmt]:
        """The body of a loop: what it carries is read again in its next step."""
        outer, self.looped = self.looped, self.looped | {*carried}
        try:
            return self._side(body, bound)
        finally:
            self.looped = outer
