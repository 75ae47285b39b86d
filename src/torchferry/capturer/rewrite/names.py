"""What statements do to names: which they set, read and change, and what stands in the way."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = [
    "BUILT_IN", "DISPATCH", "NOW", "OWN", "appended", "assigned", "called_names",
    "captured_within", "changed_in_place", "is_read_first", "loads", "obstacle",
    "only_changed", "read", "read_outside", "root_of",
]  # fmt: skip

_STOPS: dict[type[ast.AST], str] = {
    ast.Return: "it returns on one side, or within a loop",
    ast.Break: "it breaks",
    ast.Continue: "it continues",
    ast.Yield: "it yields",
    ast.YieldFrom: "it yields",
    ast.Await: "it awaits",
    ast.Try: "it has a try",
    ast.With: "it has a with",
    ast.Delete: "it deletes a name",
    ast.Global: "it sets a global",
    ast.Nonlocal: "it sets a name outside",
    ast.NamedExpr: "it assigns within an expression",
    ast.Raise: "it raises among other statements",
    ast.Import: "it imports",
    ast.ImportFrom: "it imports",
    ast.FunctionDef: "it defines a function",
    ast.AsyncFunctionDef: "it defines a function",
    ast.ClassDef: "it defines a class",
    ast.Match: "it has a match",
    ast.AsyncFor: "it awaits",
    ast.AsyncWith: "it awaits",
}

_LISTS = ("append", "extend", "insert", "pop", "update")  # methods that change a list or a dict
_CONSUMERS = ("all", "any", "list", "max", "min", "set", "sorted", "sum", "tuple")
_VIEWS = ("T", "mT", "H", "mH", "real", "imag")  # attributes that share a tensor's memory

BUILT_IN = {
    "all", "any", "enumerate", "len", "list", "max", "min", "range", "reversed", "sum", "torch",
    "tuple", "zip",
}  # fmt: skip
"""Names that loops are known by."""

DISPATCH = "_torchferry_dispatch"
"""The name of the module `torchferry.capturer.rewrite.dispatch` in rewritten code."""

OWN = "_own"
"""What a function that stands for a side of an if is given: it copies what the side changes."""

NOW = "_now"
"""What a step of a loop is given: the item."""

_SCOPES = ("locals", "vars", "dir", "eval", "exec", "globals")  # see the names of a function
_LAZY = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.GeneratorExp)


def _names(top: ast.AST, context: type[ast.expr_context]) -> Iterable[ast.Name]:
    return (
        node for node in ast.walk(top) if isinstance(node, ast.Name)
        and isinstance(node.ctx, context)
    )  # fmt: skip


def loads(top: ast.AST) -> Iterator[ast.Name]:
    """The places where a name is read, by an augmented assignment too."""
    yield from _names(top, ast.Load)
    for node in ast.walk(top):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target


def read(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return {name.id for top in body for name in loads(top)}


def read_outside(top: ast.AST, statement: ast.stmt) -> set[str]:
    """The names that are read in a tree, but for a statement in it, or copies of that."""
    inside = {_place(node) for node in loads(statement)}
    for loop in ast.walk(top):
        if isinstance(loop, ast.For):  # each step sets them
            own = {name.id for name in _names(loop.target, ast.Store)}
            inside |= {_place(node) for one in loop.body for node in loads(one) if node.id in own}
    return {name.id for name in loads(top) if _place(name) not in inside}


def _place(node: ast.Name) -> tuple[str, int, int]:
    return node.id, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def assigned(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements set; those of comprehensions are their own."""
    nodes = [node for top in body for node in ast.walk(top)]
    inner = {
        id(name) for node in nodes if isinstance(node, ast.comprehension)
        for name in _names(node.target, ast.Store)
    }  # fmt: skip
    stored = (name for top in body for name in _names(top, ast.Store))
    return {name.id for name in stored if id(name) not in inner}


def appended(body: Sequence[ast.AST]) -> set[str]:
    """The names of lists that statements add entries to, behind or in front."""
    found = set()
    for node in (inner for top in body for inner in ast.walk(top)):
        match node:
            case ast.Call(ast.Attribute(ast.Name(id=name), "append" | "extend"), [_], []):
                found.add(name)
            case ast.Call(ast.Attribute(ast.Name(id=name), "insert"), [ast.Constant(0), _], []):
                found.add(name)
    return found


def called_names(body: Sequence[ast.AST]) -> set[str]:
    """The names that statements call."""
    nodes = (node for top in body for node in ast.walk(top))
    return {node.func.id for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip


def is_read_first(body: Sequence[ast.AST], name: str) -> bool:
    """Whether statements may read a name before they set it."""
    return _first_use(body, name) == "read"


def _first_use(body: Sequence[ast.AST], name: str) -> str:
    """What is done first with a name: ``read``, ``set``, or ``""`` where that is not certain."""
    for node in body:
        use = _use(node, name)
        if use:
            return use
    return ""


def _use(node: ast.AST, name: str) -> str:
    match node:
        case ast.Assign(targets, value):
            parts: list[ast.AST] = [value, *targets]
        case ast.AugAssign(target, _, value):
            return "read" if name in read([ast.Expr(value)]) | assigned([ast.Expr(target)]) else ""
        case ast.If(test, then, other):
            sides = {_first_use(then, name), _first_use(other, name)}
            if "read" in sides or name in read([ast.Expr(test)]):
                return "read"
            return "set" if sides == {"set"} else ""
        case ast.For(target, over, inner, other):
            uses = {_first_use([ast.Expr(over)], name), _first_use([target, *inner], name)}
            return "read" if "read" in uses or _first_use(other, name) == "read" else ""
        case ast.While(test, inner, other):
            return "read" if _first_use([test, *inner, *other], name) == "read" else ""
        case ast.Name(id=found, ctx=context):
            return ("set" if isinstance(context, ast.Store) else "read") if found == name else ""
        case _:
            parts = [*ast.iter_child_nodes(node)]
    return _first_use(parts, name)


def root_of(node: ast.expr) -> str:
    """The name whose tensor an expression is, or may be a view of; ``""`` for none.

    >>> root_of(ast.parse("x[0].view(-1)", mode="eval").body)
    'x'
    """
    match node:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
            return root_of(inner)
        case ast.Attribute(value=inner, attr=attribute) if attribute in _VIEWS:
            return root_of(inner)
    return ""


def changed_in_place(body: Sequence[ast.AST]) -> set[str]:
    """The names whose objects statements change, if they are tensors.

    ``x += 1`` does, ``x[0] = 1`` and ``x.add_(1)``; ``x @= y`` makes another tensor.
    """
    roots = {
        root_of(changed) for top in body for node in ast.walk(top)
        if (changed := _changed_by(node)) is not None
    }  # fmt: skip
    return roots - {""}


def _changed_by(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.AugAssign(target=ast.Name() as name, op=op) if not isinstance(op, ast.MatMult):
            return name
        case ast.Subscript(value=inner, ctx=ast.Store()):
            return inner
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if _is_in_place(method):
            return inner
    return None


def _is_in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__")


def only_changed(body: Sequence[ast.stmt]) -> set[str]:
    """Those of `changed_in_place` that are never set to something else."""
    targets = {
        id(node.target) for top in body for node in ast.walk(top)
        if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.MatMult)
    }  # fmt: skip
    stored = (name for top in body for name in _names(top, ast.Store))
    return changed_in_place(body) - {name.id for name in stored if id(name) not in targets}


def captured_within(top: ast.AST, names: Collection[str]) -> str:
    """A name among some that a function, a lambda or a generator within a tree reads; or ``""``.

    It reads what the name holds when it runs, which is another value in a function of ours.
    """
    nodes = list(ast.walk(top))
    at_once = {
        id(node.args[0]) for node in nodes if isinstance(node, ast.Call) and len(node.args) == 1
        and isinstance(node.func, ast.Name) and node.func.id in _CONSUMERS
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, _LAZY) and node is not top and id(node) not in at_once:
            inner = [*ast.walk(node)]
            own = {one.arg for one in inner if isinstance(one, ast.arg)}
            if own & {OWN, NOW}:
                continue  # it is ours, and runs at once
            own |= {one.id for each in inner if isinstance(each, ast.comprehension)
                    for one in _names(each.target, ast.Store)}  # fmt: skip
            for name in _names(node, ast.Load):
                if name.id in names and name.id not in own:
                    return name.id
    return ""


def obstacle(body: Sequence[ast.AST], lists: Collection[str] = ()) -> str:
    """Why a body cannot become a function, or ``""``.

    Args:
        body: its nodes.
        lists: names of lists that it may add entries to.
    """
    own = {*lists} | {name.id for top in body for name in _names(top, ast.Store)}
    for top in body:
        for node in ast.walk(top):
            if type(node) in _STOPS:
                return _STOPS[type(node)]
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return f"it sets {ast.unparse(node)}"
            if isinstance(node, ast.Subscript) and _is_stored_elsewhere(node):
                return f"it sets {ast.unparse(node)}"
            if isinstance(node, ast.Name) and node.id == "super":
                return "it calls super(), which a function within has not"
            if isinstance(node, ast.Call) and (reason := _obstacle_of_call(node, own)):
                return reason
    return ""


def _is_stored_elsewhere(node: ast.Subscript) -> bool:
    """Whether an item is assigned to an object that no name reaches, as ``self.x[0] = 1``."""
    return isinstance(node.ctx, ast.Store) and not root_of(node.value)


def _obstacle_of_call(call: ast.Call, own: set[str]) -> str:
    name = ast.unparse(call.func)
    if isinstance(call.func, ast.Name) and name in _SCOPES:
        return f"it calls {name}(), which sees the names of a function"
    for keyword in call.keywords:
        said = keyword.arg == "out" or (
            keyword.arg == "inplace"
            and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        )
        if said:
            return f"it calls {name}({keyword.arg}=...), which changes what is set outside"
    if _writes(call.func, own):
        return f"it calls {name}, which changes what is set outside"
    return ""


def _writes(function: ast.expr, own: set[str]) -> bool:
    """Whether a method changes its object, and that is neither a tensor's name nor set here."""
    if isinstance(function, ast.Name):
        return _is_in_place(function.id) and not function.id.startswith("_")
    if not isinstance(function, ast.Attribute):
        return False
    if _is_in_place(function.attr):
        return not root_of(function.value)
    mine = isinstance(function.value, ast.Name) and function.value.id in own
    return function.attr in _LISTS and not mine
