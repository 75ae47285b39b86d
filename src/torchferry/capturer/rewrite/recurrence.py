"""A loop over one axis of tensors as a scan: ``for t in range(x.shape[1])``."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchferry.capturer.rewrite.code_text import names_text
from torchferry.capturer.rewrite.names import DISPATCH, changed_in_place
from torchferry.capturer.rewrite.steps import Steps

__all__ = ["Collected", "Recurrence"]


@dataclass(frozen=True)
class Collected:
    """A value that each step of a loop appends to a list or writes to a tensor.

    Attributes:
        name: a list that it is appended to, or a tensor that it is written to.
        axis: of that tensor; ``None`` for a list.
        value: it.
    """

    name: str
    axis: int | None
    value: ast.expr

    def kept(self, name: str) -> ast.stmt:
        """The statement that keeps it under a name in place of the user's."""
        value = ast.unparse(self.value)
        if self.axis is not None:
            value = f"{DISPATCH}.entry({self.name}, {self.axis}, {value})"
        return ast.parse(f"{name} = {value}").body[0]

    def store_text(self, name: str, start: str, backwards: bool) -> str:
        """The statement after the loop, with what all steps kept under a name."""
        if self.axis is None:
            return f"{self.name} = {DISPATCH}.rows({self.name}, {name})"
        return f"{DISPATCH}.fill({self.name}, {self.axis}, {start}, {name}, {backwards})"


@dataclass
class Recurrence:
    """A loop over slices of tensors, or that counts.

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
        names = [self.steps.counter, *(row.name for row in self.steps.rows)]
        self.targets = [name for name in names if name]
        self.collected: list[Collected] = []
        self.kept: list[ast.stmt] = []  # the statements of the loop that collect nothing
        body = [self._collect(statement) for statement in self.loop.body]
        lists = {one.name for one in self.collected if one.axis is None}
        changed = changed_in_place(body)
        self.assigned = self.assigned - lists
        picker = _Index(self.steps.counter, self.assigned | changed)
        picker.slices += [(row.over, row.axis) for row in self.steps.rows]
        self.body: list[ast.stmt] = [picker.visit(copy.deepcopy(one)) for one in body]
        self.slices = picker.slices
        self.counts = any(_is_name(node, self.steps.counter) for node in _nodes(self.body))
        self.carried = sorted(((self.assigned & self.read) | changed) - {*self.targets})

    def _collect(self, statement: ast.stmt) -> ast.stmt:
        found = _appended(statement) or self._written(statement)
        if found is None:
            self.kept.append(statement)
            return statement
        self.collected.append(found)
        return found.kept(f"_kept_{len(self.collected)}")

    def _written(self, statement: ast.stmt) -> Collected | None:
        """``y[:, t] = value`` where the loop does nothing else with y."""
        match statement:
            case ast.Assign([ast.Subscript(value=ast.Name(id=name)) as target], value):
                axis = _axis_of(target, self.steps.counter)
                uses = sum(_is_name(node, name) for node in ast.walk(self.loop))
                if axis is not None and uses == 1:
                    return Collected(name, axis, value)
        return None

    def obstacle(
        self, bound: set[str], rest: Sequence[ast.stmt], function: ast.FunctionDef
    ) -> str:
        """Why it is no scan, or ``""``."""
        for row in self.steps.rows:
            if row.name in changed_in_place(self.loop.body):
                return f"{row.name} is changed in place"
            if any(_calls(node, row.name) for node in _nodes(self.body)):
                return f"{row.name} is called"
        for name in self.targets:
            if _reads_outside(function, name):
                return f"{name} is read after it"
        unset = [name for name in self.carried if name not in bound]
        if unset:
            # Set anew in every step: local to it, unless it is read after the loop.
            after = {node.id for node in _nodes(rest) if isinstance(node, ast.Name)}
            if set(unset) & after:
                return f"{unset[0]} is not set before it"
            self.carried = [name for name in self.carried if name in bound]
        if not self.carried and not self.collected:
            return "nothing of it is read afterwards"
        lists = [one.name for one in self.collected if one.axis is None]
        return next((why for name in lists if (why := self._misuse(name, rest, function))), "")

    def _misuse(self, name: str, rest: Sequence[ast.stmt], function: ast.FunctionDef) -> str:
        """Why a list does not only collect, or ``""``."""
        if not any(_begins(one, name) for one in self.before):
            return f"{name} is not set to a list just before it"
        uses = sum(_is_name(node, name) for node in ast.walk(function))
        known = sum(_is_joined(node, name) or _is_item(node, name) for node in _nodes(rest))
        if uses != known + 2:  # where it begins, and where it is appended to
            return f"{name} is used for more than append, torch.stack, torch.cat and {name}[-1]"
        return ""

    def join(self, statement: ast.stmt) -> None:
        """Let ``torch.stack`` and ``torch.cat`` of a collected list take one tensor too."""
        _Join([one.name for one in self.collected if one.axis is None]).visit(statement)

    def text(self, written: str = "") -> str:
        """The code in its place: a scan over symbolic sizes, else the loop as it was.

        Args:
            written: a last argument of ``scan_over``, as code that begins with a comma.
        """
        line, steps = self.loop.lineno, self.steps
        count, start = steps.count(DISPATCH), steps.first(DISPATCH)
        items = [f"_item_{line}_{number}" for number in range(len(self.slices))]
        extent = f"{count}, {start}, {steps.backwards}"
        moved = [f"{DISPATCH}.slices({name}, {axis}, {extent})" for name, axis in self.slices]
        begin = [f"{row.name} = {item}"
                 for row, item in zip(steps.rows, items, strict=False)]  # fmt: skip
        body = [ast.unparse(statement) for statement in self.body]
        for item, (name, axis) in zip(items, self.slices, strict=True):
            body = [text.replace(_token(name, axis), item) for text in body]
        if self.counts or not self.slices:  # a scan takes as many steps as there are numbers
            items.append(steps.counter)
            moved.append(f"{DISPATCH}.numbers({extent})")
        numbers = range(1, len(self.collected) + 1)
        kept = names_text([f"_kept_{number}" for number in numbers])
        stacks = [f"_all_{line}_{number}" for number in numbers]
        after = [one.store_text(name, start, steps.backwards)
                 for one, name in zip(self.collected, stacks, strict=True)]  # fmt: skip
        carried = names_text(self.carried)
        call = f"{DISPATCH}.scan_over(_step_{line}, {carried}, {names_text(moved)}{written})"
        scan = [
            f"def _step_{line}({', '.join([*self.carried, *items])}):",
            textwrap.indent("\n".join([*begin, *body, f"return ({carried}, {kept})"]), "    "),
            f"({carried}, {names_text(stacks)}) = {call}",
            *after,
        ]
        arguments = ", ".join([count, start, *(name for name, _ in self.slices)])
        return "\n".join([
            *(f"{name} = {code}" for name, code in steps.setup),
            f"if {DISPATCH}.runs_over({arguments}):",
            textwrap.indent("\n".join(scan), "    "),
            f"else:\n{textwrap.indent(self._as_it_was(), '    ')}\n",
        ])  # fmt: skip

    def _as_it_was(self) -> str:
        text = ast.unparse(self.loop)
        head, _, body = text.partition("\n")
        for name, code in self.steps.setup:  # it is computed once
            head = head.replace(code, name, 1)
        return f"{head}\n{body}"


class _Index(ast.NodeTransformer):
    """Replaces ``x[:, t]``: by a name where x is as before the loop, else by a call."""

    def __init__(self, counter: str, changing: set[str]) -> None:
        self.counter, self.changing = counter, changing
        self.slices: list[tuple[str, str]] = []

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not self._counts(node) or not isinstance(node.ctx, ast.Load):
            return node
        axis = _axis_of(node, self.counter)
        if axis is None or not isinstance(node.value, ast.Name) or node.value.id in self.changing:
            return _call("at", node.value, node.slice)
        found = (node.value.id, str(axis))
        if found not in self.slices:
            self.slices.append(found)
        return ast.Name(_token(*found), ast.Load())

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Subscript(value=ast.Name(id=name)) as target], value):
                if self._counts(target):
                    put = _call("put", _load(name), target.slice, value)
                    assignment = ast.Assign([ast.Name(name, ast.Store())], put)
                    return ast.fix_missing_locations(ast.copy_location(assignment, node))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        match node.target:
            case ast.Subscript(value=ast.Name(id=name), slice=index) if self._counts(node.target):
                before = ast.Subscript(_load(name), copy.deepcopy(index), ast.Load())
                value = ast.BinOp(before, node.op, node.value)
                return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))
        self.generic_visit(node)
        return node

    def _counts(self, node: ast.Subscript) -> bool:
        return any(_is_name(inner, self.counter) for inner in ast.walk(node.slice))


class _Join(ast.NodeTransformer):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        for name in self.names:
            if _is_joined(node, name) and isinstance(node.func, ast.Attribute):
                kind = "stack" if node.func.attr == "stack" else "cat"
                node.func = ast.parse(f"{DISPATCH}.{kind}", mode="eval").body
        return node


def _axis_of(node: ast.Subscript, counter: str) -> int | None:
    """The axis that ``x[:, t]`` picks a slice of; ``None`` where it does more."""
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    places = [place for place, inner in enumerate(index) if _is_name(inner, counter)]
    whole = [inner for inner in index if isinstance(inner, ast.Slice)
             and not (inner.lower or inner.upper or inner.step)]  # fmt: skip
    return places[0] if len(places) == 1 and len(whole) == len(index) - 1 else None


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


def _begins(statement: ast.stmt, name: str) -> bool:
    """Whether it sets a name to a list: ``name = []``, ``name, other = [], []``."""
    match statement:
        case ast.Assign([ast.Name(id=found)], value) | ast.AnnAssign(ast.Name(id=found), _, value):
            return found == name and _isnames_text(value)
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            return any(
                _is_name(target, name) and _isnames_text(value)
                for target, value in zip(targets, values, strict=True)
            )
    return False


def _isnames_text(node: ast.AST | None) -> bool:
    match node:
        case ast.List(elts=items):
            return not any(isinstance(item, ast.Starred) for item in items)
    return False


def _is_joined(node: ast.AST, name: str) -> bool:
    """Whether it is ``torch.stack(name)`` or ``torch.cat(name)``, with a dimension or without."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("torch.stack", "torch.cat", "torch.concat")
        and bool(node.args)
        and _is_name(node.args[0], name)
        and len(node.args) + len(node.keywords) <= 2
        and all(keyword.arg == "dim" for keyword in node.keywords)
    )


def _is_item(node: ast.AST, name: str) -> bool:
    """Whether it is ``name[-1]`` or ``name[0]``."""
    match node:
        case ast.Subscript(ast.Name(id=found), ast.Constant(0), ast.Load()):
            return found == name
        case ast.Subscript(
            ast.Name(id=found), ast.UnaryOp(ast.USub(), ast.Constant(1)), ast.Load()
        ):
            return found == name
    return False


def _appended(statement: ast.stmt) -> Collected | None:
    """What ``ys.append(y)``, or ``ys += [y]``, appends."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(id=name), "append"), [item], [])):
            return Collected(name, None, item)
        case ast.AugAssign(ast.Name(id=name), ast.Add(), ast.List([item])):
            return Collected(name, None, item)
    return None


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and _is_name(node.func, name)


def _nodes(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    return (node for statement in statements for node in ast.walk(statement))


def _call(function: str, *arguments: ast.expr) -> ast.expr:
    """A call of ours; an index becomes a value: ``(slice(None), t)``."""
    text = f"{DISPATCH}.{function}({', '.join(_value(one) for one in arguments)})"
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr) -> str:
    match node:
        case ast.Slice(lower, upper, step):
            bounds = ("None" if bound is None else ast.unparse(bound)
                      for bound in (lower, upper, step))  # fmt: skip
            return f"slice({', '.join(bounds)})"
        case ast.Tuple(items) if any(isinstance(item, ast.Slice) for item in items):
            return names_text([_value(item) for item in items])
    return ast.unparse(node)


def _token(name: str, axis: str) -> str:
    return f"_slice_of_{name}_{axis.replace('-', 'minus')}_"


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
