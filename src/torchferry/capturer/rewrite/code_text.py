"""Pieces of rewritten code as text, and where they stand."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Collection, Sequence

from torchferry.capturer.rewrite.names import DISPATCH

__all__ = ["condition_text", "expression", "function_text", "names_text", "place", "written_text"]


def function_text(
    title: str,
    parameters: Sequence[str],
    body: Sequence[ast.stmt],
    values: Sequence[str] | None = None,
) -> str:
    """A function as text, that returns values, or as its body does."""
    inner = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in body)
    text = inner if values is None else f"{inner}\nreturn {names_text(values)}"
    return f"def {title}({', '.join(parameters)}):\n{textwrap.indent(text, '    ')}\n"


def condition_text(test: ast.expr) -> str:
    """A condition as text; ``not``, ``and``, ``or`` and numbers would ask a tensor's value."""
    match test:
        case ast.UnaryOp(ast.Not(), operand):
            return f"{DISPATCH}.invert({condition_text(operand)})"
        case ast.BoolOp(operator, [first, *others]):
            name = "both" if isinstance(operator, ast.And) else "either"
            text = condition_text(first)
            for other in others:
                text = f"{DISPATCH}.{name}({text}, lambda: {condition_text(other)})"
            return text
    return ast.unparse(_Numbers().visit(copy.deepcopy(test)))


class _Numbers(ast.NodeTransformer):
    """Asks for ``x.item()``, ``int(x)``, ``float(x)`` and ``bool(x)`` as tensors of rank 0."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(tensor, "item"), [], []):
                return _number("item", tensor)
            case ast.Call(ast.Name("int" | "float" | "bool" as kind), [tensor], []):
                return _number(f"as_{kind}", tensor)
        return node


def _number(function: str, tensor: ast.expr) -> ast.expr:
    text = f"{DISPATCH}.{function}({ast.unparse(tensor)})"
    return ast.parse(text, mode="eval").body


def written_text(names: Sequence[str], changed: Collection[str]) -> str:
    """A further argument: the names that stay the tensors they are, by their position."""
    places = ", ".join(f"{n}: {name}" for n, name in enumerate(names) if name in changed)
    return f", {{{places}}}" if places else ""


def names_text(names: Sequence[str]) -> str:
    """Names as a tuple."""
    return f"({', '.join(names)},)" if names else "()"


def expression(text: str, original: ast.stmt | ast.expr) -> ast.expr:
    """An expression as text, on the line of what it replaces."""
    node = ast.parse(text, mode="eval").body
    place(node, original)
    return node


def place(new: ast.stmt | ast.expr, original: ast.stmt | ast.expr) -> None:
    """Put all of it on the first line of the original, which is what a traceback then shows."""
    for node in ast.walk(new):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
            node.lineno = node.end_lineno = original.lineno
            node.col_offset = node.end_col_offset = original.col_offset
