"""What sizes must fulfil for a program to be right, as text that is read and never executed."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from torchferry.dims.dim import Size, evaluate, names_in
from torchferry.dims.evaluation import value_of
from torchferry.dims.parse import parse_size

__all__ = ["Condition"]

_SMALL = (3, 2, 4, 5, 6, 7, 8, 9, 12, 16)
_LEAST = (1, 0)
_LARGEST = 2**31  # exponents and sizes beyond are no sizes; a file may say anything


@dataclass(frozen=True)
class Condition:
    """A comparison of sizes.

    Attributes:
        test: arithmetic, comparisons and a few functions of ``n0``, ``n1``, ...
        sizes: what these stand for: names of dimensions, or expressions of names.
        line: ``file:line: code`` that decided it, where that is known; it makes no difference.
        choice: whether an operator of PyTorch asked, to choose between ways that compute the same.

    >>> condition = Condition("n0 % 4 == 2", ("batch",))
    >>> str(condition), condition.holds({"batch": 6}), condition.holds({"batch": 5})
    ('batch % 4 == 2', True, False)
    """

    test: str
    sizes: tuple[str, ...]
    line: str = field(default="", compare=False)
    choice: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Read it once, so that a text of another kind is known at the start.

        Raises:
            ValueError: it is one.
        """
        self.holds(dict.fromkeys(self.names, 1))

    @property
    def stored(self) -> tuple[str, tuple[str, ...], str, bool]:
        """What it is made of."""
        return self.test, self.sizes, self.line, self.choice

    @cached_property
    def names(self) -> frozenset[str]:
        """The dimensions it speaks of."""
        return frozenset[str]().union(*map(names_in, self._parsed))

    @cached_property
    def _parsed(self) -> tuple[Size, ...]:
        return tuple(map(parse_size, self.sizes))

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.test, mode="eval").body

    def unknown(self, values: Mapping[str, int]) -> tuple[str, ...]:
        """Those of `sizes` that values do not determine.

        >>> Condition("n0 > n1", ("2*past", "batch")).unknown({"batch": 2})
        ('2*past',)
        """
        pairs = zip(self.sizes, self._parsed, strict=True)
        return tuple(
            text for text, size in pairs if text not in values and names_in(size) - values.keys()
        )

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the sizes fulfil it; what cannot be computed, as ``n0 % 0``, does not.

        Args:
            values: the size of each name in `names`, or of a whole expression in `sizes`.

        Raises:
            ValueError: the text is of another kind.
        """
        try:
            return bool(value_of(self._tree, self._known(values)))
        except ArithmeticError:
            return False
        except (SyntaxError, RecursionError, TypeError) as error:
            raise ValueError(f"{self.test!r} is no condition on sizes") from error

    def _known(self, values: Mapping[str, int]) -> dict[str, int]:
        pairs = enumerate(zip(self.sizes, self._parsed, strict=True))
        return {
            f"n{i}": values[text] if text in values else evaluate(size, values)
            for i, (text, size) in pairs
        }

    def broken_by(self, values: Mapping[str, int]) -> bool:
        """Whether sizes are known not to fulfil it.

        >>> [Condition("n0 > 1", ("batch",)).broken_by(sizes) for sizes in ({"batch": 1}, {})]
        [True, False]
        """
        return not self.unknown(values) and not self.holds(values)

    def tested(self, values: Mapping[str, int]) -> int | None:
        """The number that is compared with a constant, if the condition is such a comparison.

        >>> Condition("n0 // n1 > 1", ("rows", "columns")).tested({"rows": 6, "columns": 2})
        3
        """
        match self._tree:
            case ast.Compare(left=left, comparators=[ast.Constant()]):
                with suppress(ArithmeticError):
                    return int(value_of(left, self._known(values)))
        return None

    def samples(self) -> Iterator[dict[str, int]]:
        """Small sizes, and sizes next to the numbers in the test, in all combinations."""
        constants = [
            node.value
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, int)
        ]
        near = {c + step for c in constants for step in (-1, 0, 1) if 1 < c < _LARGEST}
        names = sorted(self.names)
        few = _SMALL if len(names) < 3 else _SMALL[:4]
        values = [*few, *sorted(near - set(few)), *_LEAST]
        for chosen in itertools.product(values, repeat=len(names)):
            yield dict(zip(names, chosen, strict=True))

    @property
    def of_empty(self) -> bool:
        """Whether it says no more than that a size is not 0, or an integer not negative."""
        return self.test in ("n0 != 0", "n0 > 0", "n0 >= 0")

    @property
    def of_special(self) -> bool:
        """Whether it says no more than that a size is not 0, not 1, or neither."""
        return self.of_empty or self.test in ("n0 != 1", "n0 >= 2", "n0 > 1")

    @cached_property
    def matters(self) -> bool:
        """Whether it fails for sizes beyond 1, as far as `samples` show, and not where one is 1.

        ``torch.export`` asks of every size, computed ones too, whether it is 1, since a 1 may be
        broadcast, and that has no consequence for most models.
        """
        match self._tree:
            case ast.Compare(
                ops=[ast.NotEq() | ast.Gt()], left=left, comparators=[ast.Constant(1)]
            ):
                return _is_remainder(left)
            case ast.Compare(ops=[ast.GtE()], left=left, comparators=[ast.Constant(2)]):
                return _is_remainder(left)
            case ast.Compare(
                ops=[ast.NotEq() | ast.Lt()], left=ast.Constant(1), comparators=[right]
            ):
                return _is_remainder(right)
        return any(min(s.values(), default=0) > 1 and not self.holds(s) for s in self.samples())

    def __str__(self) -> str:
        """The condition in the names of the dimensions."""
        named = {f"n{i}": _grouped(size) for i, size in enumerate(self.sizes)}
        return ast.unparse(_Named(named).visit(ast.parse(self.test, mode="eval")))


class _Named(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        self.generic_visit(node)
        return node.args[0] if called == "torch.sym_float" else node


def _is_remainder(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _grouped(size: str) -> str:
    found = parse_size(size)
    return size if isinstance(found, int) or found.name == size else f"({size})"
