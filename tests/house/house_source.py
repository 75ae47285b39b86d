"""A Python file as the rules of the house see it: text, tree, imports, places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

__all__ = ["DEFINITIONS", "FUNCTIONS", "PACKAGE", "Source", "exported", "imports"]

PACKAGE = "src/torchferry/"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root of the repository, with ``/``, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def in_package(self) -> bool:
        return self.path.startswith(PACKAGE)

    @property
    def inner(self) -> str:
        """The path within the package: ``values/describe.py``."""
        return self.path.removeprefix(PACKAGE)

    @property
    def room(self) -> str:
        return self.inner.split("/")[0].removesuffix(".py")

    def lies_in(self, places: tuple[str, ...]) -> bool:
        return any(self.inner == place or self.inner.startswith(f"{place}/") for place in places)

    @cached_property
    def scopes(self) -> list[tuple[int, int, str]]:
        """First line, last line and qualified name of every class and function, outer first."""
        found: list[tuple[int, int, str]] = []

        def visit(node: ast.AST, prefix: str) -> None:
            for child in ast.iter_child_nodes(node):
                inner = prefix
                if isinstance(child, DEFINITIONS):
                    inner = f"{prefix}.{child.name}" if prefix else child.name
                    found.append((child.lineno, child.end_lineno or child.lineno, inner))
                visit(child, inner)

        visit(self.tree, "")
        return found

    def place(self, line: int) -> str:
        """``path``, or ``path::qualified.name`` for what stands within a class or function."""
        around = [name for first, last, name in self.scopes if first <= line <= last]
        return f"{self.path}::{around[-1]}" if around else self.path


def imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """Line, module, and how it is imported: ``top``, ``inside`` a function, or for ``typing``.

    The module carries the imported name: ``from torch import nn`` gives ``torch.nn``.
    """
    how: dict[ast.AST, str] = {}
    for node in source.nodes:  # a node comes before what it holds, and hands its mark down
        mark = how.get(node, "top")
        if isinstance(node, FUNCTIONS):
            mark = "inside" if mark == "top" else mark
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            typing_only = not ast.unparse(node.test).startswith("not ")
            how |= dict.fromkeys(node.body if typing_only else node.orelse, "typing")
        for child in ast.iter_child_nodes(node):
            how.setdefault(child, mark)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, mark) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The package of a module has one part less than its path; each dot takes one more.
            package = source.path.removeprefix("src/").removesuffix(".py").split("/")
            start = ".".join(package[: len(package) - node.level]) if node.level else ""
            base = ".".join(part for part in (start, node.module) if part)
            yield from ((node.lineno, f"{base}.{alias.name}", mark) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            yield from ((node.lineno, str(name), mark) for name in names)


def exported(tree: ast.Module) -> list[str] | None:
    """The names of a literal ``__all__``, or None when there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            try:
                return list(ast.literal_eval(value))
            except ValueError:
                return None
    return None
