"""Give every message that torchferry raises on purpose a code: `make messages`.

``src/torchferry/messages.txt`` has a line for each message, ``CODE⇥FILE⇥TEMPLATE``; what a message
fills in is ``{}`` in its template. The letter of a code is the class of the error. A message whose
words changed keeps its code; a code that nothing raises any longer is not given away again while
its line stands below the others.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LETTERS", "Message", "raised", "read_table", "sites", "update"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/torchferry"
TABLE = PACKAGE / "messages.txt"
LETTERS = {
    "UsageError": "U", "CaptureError": "C", "ConversionError": "V", "MissingLowering": "O",
    "LoweringFailed": "L", "RunError": "R", "Mismatch": "M", "RuleBroke": "B",
}  # fmt: skip
SHORTEST = 5  # letters of a template that tell it from others
ALIKE = 0.6  # of two templates of one file: the words were changed


@dataclass(frozen=True)
class Message:
    """A message: where it is raised and its text, with ``{}`` for what is filled in."""

    letter: str
    file: str
    template: str


def sites(package: Path = PACKAGE) -> list[Message]:
    """Every message in the sources, once, in the order of files and lines."""
    found: dict[tuple[str, str], Message] = {}
    for file, call, templates in raised(package):
        letter = LETTERS[ast.unparse(call.func)]
        for template in templates:
            found.setdefault((letter, template), Message(letter, file, template))
    return list(found.values())


def raised(package: Path = PACKAGE) -> Iterator[tuple[str, ast.Call, list[str]]]:
    """File and call of each place that makes an error, with the templates of its message."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(package.rglob("*.py"))}
    public = {name: f for tree in trees.values() for name, f in _functions(tree).items()}
    for path, tree in trees.items():
        file = path.relative_to(package).with_suffix("").as_posix()
        functions = public | _functions(tree)
        for scope in _scopes(tree):
            for node in _own_nodes(scope):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in LETTERS and node.args:
                    yield file, node, _templates(node.args[0], scope, functions)


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _scopes(tree: ast.Module) -> list[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [tree, *(node for node in ast.walk(tree) if isinstance(node, kinds))]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that are not in a function inside it, in order of lines."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _own_nodes(node)


def _templates(
    node: ast.expr, scope: ast.AST, functions: Mapping[str, ast.FunctionDef]
) -> list[str]:
    """What a message may be; nothing if the text comes from elsewhere.

    Names stand for what they are assigned, calls of the package's functions for what these return,
    and lines that are joined for the first of them.
    """
    parts: list[ast.expr] | None = None
    end, inside = "", scope
    if isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.Name):
        parts = _assigned(node.id, scope)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inside = functions.get(node.func.id, scope)
        returned = [n for n in _own_nodes(inside) if isinstance(n, ast.Return)]
        parts = [n.value for n in returned if n.value] if inside is not scope else []
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("'.join"):
        lines = _assigned(ast.unparse(node.args[0]), scope)
        parts, end = [one.elts[0] for one in lines if isinstance(one, ast.List)], "{}"
    if parts is not None:
        return [text + end for part in parts for text in _templates(part, inside, functions)]
    text = " ".join(_text(node).split())
    return [text] if len(text.replace("{}", "").strip(" :;,.")) >= SHORTEST else []


def _assigned(name: str, scope: ast.AST) -> list[ast.expr]:
    """What a name is assigned in a function, also inside a condition."""
    return [
        node.value
        for node in _own_nodes(scope)
        if (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
        or (isinstance(node, ast.NamedExpr) and node.target.id == name)
    ]


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.Subscript):  # a text that is cut
        return _text(node.value)
    return "{}"


def read_table(text: str) -> dict[str, Message]:
    """Code to message, from the text of the table."""
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return {code: Message(code[3], file, template) for code, file, template in rows}


def update(table: dict[str, Message], found: list[Message]) -> dict[str, Message]:
    """The table for what the sources say now: codes stay with their messages.

    Args:
        table: as it was.
        found: of `sites`.
    """
    codes = {message: code for code, message in table.items()}
    new = {codes[message]: message for message in found if message in codes}
    left = {code: message for code, message in table.items() if code not in new}
    for message in found:
        if message in codes:
            continue
        near = [
            c for c, old in left.items() if old.letter == message.letter and _alike(old, message)
        ]
        code = near[0] if near else _next(message.letter, [*table, *new])
        left.pop(code, None)
        new[code] = message
    return dict(sorted(new.items(), key=lambda item: (item[0][3], int(item[0][4:]))))


def _alike(old: Message, new: Message) -> bool:
    if old.file != new.file:
        return old.template == new.template  # it was moved
    return difflib.SequenceMatcher(None, old.template, new.template).ratio() >= ALIKE


def _next(letter: str, codes: list[str]) -> str:
    used = [int(code[4:]) for code in codes if code[3] == letter]
    return f"TF-{letter}{max(used, default=0) + 1:02}"


def main() -> None:
    """Write the table, and say what changed."""
    old = read_table(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    new = update(old, sites())
    head = "# Written by `make messages`; docs/errors.toml has the causes and cures.\n"
    lines = [f"{code}\t{one.file}\t{one.template}\n" for code, one in new.items()]
    TABLE.write_text(head + "".join(lines), "utf-8")
    sys.stdout.write(f"{len(new)} messages, {len(new.keys() - old.keys())} of them new\n")


if __name__ == "__main__":
    main()
