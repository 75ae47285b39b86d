"""What a loop runs over as calls of `dispatch`, and loops without break and continue."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence

from torchferry.capturer.rewrite.names import DISPATCH

__all__ = ["leaves_early", "over_text", "without_jumps"]

_CALLS = {"range": "walk_range", "zip": "zipped", "enumerate": "enumerated",
          "reversed": "reversed_"}  # fmt: skip
_PARTS = {"split": "sections", "unbind": "unbound"}
_PYTHON = ("children", "items", "keys", "modules", "named_children", "named_modules",
           "named_parameters", "parameters", "values")  # fmt: skip


def over_text(node: ast.expr, shadowed: Collection[str]) -> str:
    """What a loop runs over, as code; ``""`` if no size can say how often.

    Args:
        node: it may be ``range``, a tensor, its ``unbind`` or ``split``, a list that a loop has
            filled, and ``zip``, ``enumerate`` or ``reversed`` of them.
        shadowed: names of built-in functions that mean something else.
    """
    match node:
        case ast.Call(ast.Name(id="list" | "tuple"), [inner], []):
            return over_text(inner, shadowed)
        case ast.Call(ast.Name(id=name), arguments, keywords) if name in _CALLS:
            if name in shadowed or any(isinstance(one, ast.Starred) for one in arguments):
                return ""
            texts = [ast.unparse(one) if name == "range" else over_text(one, shadowed) or
                     ast.unparse(one) for one in arguments]  # fmt: skip
            texts += [ast.unparse(one) for one in keywords]
            return f"{DISPATCH}.{_CALLS[name]}({', '.join(texts)})"
        case ast.Call(ast.Attribute(owner, name), arguments, keywords) if name in _PARTS:
            given = [*([] if _is_torch(owner) else [owner]), *arguments, *keywords]
            return f"{DISPATCH}.{_PARTS[name]}({', '.join(map(ast.unparse, given))})"
        case ast.Call(ast.Attribute(attr=name)) if name not in _PYTHON:
            return f"{DISPATCH}.walk({ast.unparse(node)})"
        case ast.Name() | ast.Subscript() | ast.Attribute(attr="T" | "mT"):
            return f"{DISPATCH}.walk({ast.unparse(node)})"
    return ""


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def leaves_early(body: Sequence[ast.AST], kind: type[ast.stmt] = ast.Break) -> bool:
    """Whether a loop's own body breaks; or continues, or whatever is asked for."""
    for node in body:
        if isinstance(node, kind):
            return True
        inner = not isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.Lambda)
        if inner and leaves_early([*ast.iter_child_nodes(node)], kind):
            return True
    return False


def without_jumps(body: Sequence[ast.stmt], flag: str) -> list[ast.stmt]:
    """A loop's body with ``if``s in place of ``continue`` and ``break``.

    Args:
        body: of the loop.
        flag: the name that is set to True where it breaks.
    """
    result: list[ast.stmt] = []
    for place, statement in enumerate(body):
        jumps = leaves_early([statement]) or leaves_early([statement], ast.Continue)
        match statement:
            case ast.Continue():
                return result
            case ast.Break():
                return [*result, *ast.parse(f"{flag} = True").body]
            case ast.If(test, then, other) if jumps:
                rest = list(body[place + 1 :])
                sides = [without_jumps([*copy.deepcopy(side), *copy.deepcopy(rest)], flag)
                         for side in (then, other)]  # fmt: skip
                new = ast.If(test, sides[0] or [ast.Pass()], sides[1])
                return [*result, ast.copy_location(new, statement)]
        result.append(statement)
    return result
