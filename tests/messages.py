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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LETTERS", "Message", "read_table", "sites", "update"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/torchferry"
TABLE = PACKAGE / "messages.txt"
LETTERS = {
    "UsageError": "U", "CaptureError": "C", "ConversionError": "V", "MissingLowering": "O",
    "LoweringFailed": "L", "RunError": "R", "Mismatch": "M", "RuleBroke": "B",
}  # fmt: skip
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
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        file = path.relative_to(package).with_suffix("").as_posix()
        for scope in _scopes(tree):
            for node in _own_nodes(scope):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                    continue
                name = node.func.id
                if name in LETTERS and node.args:
                    for template in _templates(node.args[0], scope):
                        letter = LETTERS[name]
                        found.setdefault((letter, template), Message(letter, file, template))
    return list(found.values())


def _scopes(tree: ast.Module) -> list[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [tree, *(node for node in ast.walk(tree) if isinstance(node, kinds))]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that are not in a function inside it, in order of lines."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _own_nodes(node)


def _templates(node: ast.expr, scope: ast.AST) -> list[str]:
    """What a message may be; nothing if the text comes from elsewhere."""
    if isinstance(node, ast.IfExp):
        return _templates(node.body, scope) + _templates(node.orelse, scope)
    if isinstance(node, ast.Name):
        return [
            text
            for other in _own_nodes(scope)
            if isinstance(other, ast.Assign) and ast.unparse(other.targets[0]) == node.id
            for text in _templates(other.value, scope)
        ]
    text = _text(node)
    return [" ".join(text.split())] if len(text.replace("{}", "").strip(" :;,.")) > 6 else []


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
