"""A loop over one axis of tensors that carries names along: ``for t in range(x.shape[1])``."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from torchferry.capturer.steps import Steps

__all__ = ["Recurrence", "appended"]


@dataclass
class Recurrence:
    """A loop whose counter only picks slices of tensors.

    Attributes:
        loop: the loop.
        steps: of it.
        assigned: names its body sets.
        read: names that are read in it or after it.
        before: what comes before it in its block.
    """

    loop: ast.For
    steps: Steps
    assigned: set[str]
    read: set[str]
    before: Sequence[ast.stmt] = ()

    def __post_init__(self) -> None:
        """Find what is sliced, what is collected, and what is carried."""
        self.targets = [name for name in (self.steps.counter, self.steps.row) if name]
        picker = _Pick(self.steps.counter, self.assigned)
        picker.slices += [(self.steps.over, 0)] if self.steps.row else []
        self.body = [picker.visit(copy.deepcopy(one)) for one in self.loop.body]
        self.slices = picker.slices
        self.collected = [found[0] for one in self.loop.body if (found := appended(one))]
        self.carried = sorted((self.assigned - {*self.targets}) & self.read)

    def obstacle(
        self, bound: set[str], rest: Sequence[ast.stmt], function: ast.FunctionDef
    ) -> str:
        """Why it is no scan, or ``""``."""
        if misuse := self._misuse():
            return misuse
        for name in self.targets:
            if _reads_outside(function, name):
                return f"{name} is read after it"
        if not self.slices:
            return "it picks no slice of a tensor"
        unset = [name for name in self.carried if name not in bound]
        if unset:
            # Set anew in every step: local to it, unless it is read after the loop.
            after = {node.id for one in rest for node in ast.walk(one)
                     if isinstance(node, ast.Name)}  # fmt: skip
            if set(unset) & after:
                return f"{unset[0]} is not set before it"
            self.carried = [name for name in self.carried if name in bound]
        if not self.carried:
            return "it carries nothing along: write it without a loop"
        for name in self.collected:
            stacks = sum(_is_stack(node, name) for one in rest for node in ast.walk(one))
            uses = sum(isinstance(node, ast.Name) and node.id == name
                       for node in ast.walk(function))  # fmt: skip
            if stacks != 1 or uses != 3:  # set to [], appended to, stacked
                return f"{name} is used for more than append and one torch.stack"
            if not any(_empties(one, name) for one in self.before):
                return f"{name} is not set to [] just before it"
        return ""

    def _misuse(self) -> str:
        counter, row = self.steps.counter, self.steps.row
        nodes = [node for one in self.body for node in ast.walk(one)]
        if any(_is_name(node, counter) for node in nodes):
            return f"{counter} does more than pick x[:, {counter}]"
        return next((why for node in nodes if (why := _misuse(node, row))), "")

    def stack(self, statement: ast.stmt) -> None:
        """What is collected comes stacked: ``torch.stack(ys, d)`` becomes a move of its axis."""
        _Move(self.collected).visit(statement)

    def text(self, dispatch: str, written: str = "") -> str:
        """The code in its place: a scan over symbolic sizes, else the loop as it was.

        Args:
            dispatch: what the module that it calls is called.
            written: a last argument of ``scan_over``, as code that begins with a comma.
        """
        line, steps = self.loop.lineno, self.steps
        count, start = steps.count(dispatch), steps.first(dispatch)
        items = [f"_item_{line}_{number}" for number in range(len(self.slices))]
        moved = [f"{dispatch}.slices({name}, {axis}, {count}, {start})"
                 for name, axis in self.slices]  # fmt: skip
        parameters = ", ".join([*self.carried, *items])
        body, values = [f"{steps.row} = {items[0]}"] if steps.row else [], []
        for one in self.body:
            found = appended(one)
            values += [found[1]] if found else []
            body.append(f"_kept_{len(values)} = {found[1]}" if found else ast.unparse(one))
        for number, (name, axis) in enumerate(self.slices):
            body = [text.replace(_token(name, axis), items[number]) for text in body]
        kept = _list([f"_kept_{number + 1}" for number in range(len(values))])
        carried, collected = _list(self.carried), _list(self.collected)
        stacked = "".join(f"    {name} = {dispatch}.stacked({name})\n" for name in self.collected)
        arguments = ", ".join([count, start, *(name for name, _ in self.slices)])
        return (
            f"if {dispatch}.runs_over({arguments}):\n"
            f"    def _step_{line}({parameters}):\n"
            + textwrap.indent("\n".join(body), " " * 8)
            + f"\n        return ({carried}, {kept})\n"
            f"    ({carried}, {collected}) = "
            f"{dispatch}.scan_over(_step_{line}, {carried}, {_list(moved)}{written})\n"
            f"else:\n{textwrap.indent(ast.unparse(self.loop), '    ')}\n{stacked}"
        )


class _Pick(ast.NodeTransformer):
    """Replaces ``x[:, t]`` by a name, and remembers x and the axis."""

    def __init__(self, counter: str, assigned: set[str]) -> None:
        self.counter, self.assigned = counter, assigned
        self.slices: list[tuple[str, int]] = []

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        places = [n for n, one in enumerate(index) if _is_name(one, self.counter)]
        whole = [one for one in index if isinstance(one, ast.Slice)
                 and not (one.lower or one.upper or one.step)]  # fmt: skip
        if (
            len(places) == 1
            and len(whole) == len(index) - 1
            and isinstance(node.value, ast.Name)
            and node.value.id not in self.assigned
            and isinstance(node.ctx, ast.Load)
        ):
            found = (node.value.id, places[0])
            if found not in self.slices:
                self.slices.append(found)
            return ast.Name(_token(*found), ast.Load())
        return self.generic_visit(node)


class _Move(ast.NodeTransformer):
    def __init__(self, collected: Sequence[str]) -> None:
        self.collected = collected

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        for name in self.collected:
            if _is_stack(node, name):
                axis = [*node.args[1:], *(k.value for k in node.keywords), ast.Constant(0)][0]
                function = ast.Attribute(_name(name), "movedim", ast.Load())
                return ast.Call(function, [ast.Constant(0), axis], [])
        return node


def _reads_outside(function: ast.FunctionDef, counter: str) -> bool:
    """Whether a counter, or a row, is read elsewhere than in loops of its own."""
    own = {
        id(node)
        for loop in ast.walk(function) if isinstance(loop, ast.For)
        and any(_is_name(target, counter) for target in ast.walk(loop.target))
        for node in ast.walk(loop)
    }  # fmt: skip
    return any(
        _is_name(node, counter) and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        for node in ast.walk(function) if id(node) not in own
    )  # fmt: skip


def _misuse(node: ast.AST, row: str) -> str:
    """What is done to a row that is done to no slice of a tensor, or that writes into it."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name == row:
            return f"{row} is called"
        case ast.AugAssign(target=ast.Name(id=name)) if name == row:
            return f"{row} is changed in place"
    return ""


def _empties(statement: ast.stmt, name: str) -> bool:
    """Whether it is ``name = []``."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=found)], value=ast.List(elts=[]))
            | ast.AnnAssign(target=ast.Name(id=found), value=ast.List(elts=[]))
        ):
            return found == name
    return False


def _token(name: str, axis: int) -> str:
    return f"_slice_of_{name}_{axis}_"


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_stack(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "torch.stack"
        and bool(node.args)
        and _is_name(node.args[0], name)
        and len(node.args) + len(node.keywords) <= 2
        and all(keyword.arg == "dim" for keyword in node.keywords)
    )


def appended(statement: ast.stmt) -> tuple[str, str] | None:
    """The list that ``ys.append(y)`` appends to, and what it appends."""
    match statement:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append"),
                args=[item],
                keywords=[],
            )
        ):
            return name, ast.unparse(item)
    return None


def _list(names: Sequence[str]) -> str:
    return f"({', '.join(names)},)" if names else "()"
