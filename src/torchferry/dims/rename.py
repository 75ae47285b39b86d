"""torch's symbols (``s31``) → the user's names, consistently over a whole program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchferry.dims.dim import Dim, Size, names_in, substitute

__all__ = ["Renaming", "solve", "solve_renaming"]


@dataclass(frozen=True)
class Renaming:
    """What each symbol is called.

    Attributes:
        names: symbol → size in the user's names.
        conflicts: ``(place, found, wanted)`` of the axes whose size, written in the user's names,
            is not the one wanted: torch made two sizes equal, or fixed one.
    """

    names: Mapping[str, Size]
    conflicts: tuple[tuple[str, Size, Size], ...] = ()

    def apply(self, size: Size) -> Size:
        """The size in the user's names; symbols without a name stay as they are."""
        return substitute(size, self.names)


def solve_renaming(axes: Iterable[tuple[str, Size, Size]]) -> Renaming:
    """Find the name of every symbol from axes whose size is known both ways.

    Args:
        axes: ``(place, found, wanted)``: where (``input_ids axis 1``), the size as torch has it,
            the size as the user names it.

    >>> s = Dim.of
    >>> renaming = solve_renaming([("x axis 0", s("s7"), s("batch")),
    ...                            ("x axis 1", 2 * s("s9"), s("width"))])
    >>> str(renaming.apply(s("s7") + 2 * s("s9")))
    'batch + 2*(width//2)'
    """
    axes = list(axes)
    names: dict[str, Size] = {}
    # Plain symbols with a plain name first: they name most symbols, and exactly.
    for _, found, wanted in sorted(axes, key=lambda axis: _complexity(axis[1], axis[2])):
        known = substitute(found, names)
        unknown = names_in(found) - names.keys()
        if len(unknown) == 1 and isinstance(known, Dim):
            symbol = next(iter(unknown))
            solution = _solve(known, symbol, wanted)
            if solution is not None:
                names[symbol] = solution
    conflicts = [
        (place, substitute(found, names), wanted)
        for place, found, wanted in axes
        if not _agree(substitute(found, names), found, wanted)
    ]
    return Renaming(names, tuple(conflicts))


def _agree(renamed: Size, found: Size, wanted: Size) -> bool:
    if renamed == wanted:
        return True
    # ``2*s9`` named ``width`` reads ``2*(width//2)``: the same size, as width is even there.
    return isinstance(found, Dim) and found.name is None and names_in(renamed) == names_in(wanted)


def _complexity(found: Size, wanted: Size) -> tuple[bool, bool, int]:
    plain_found = isinstance(found, Dim) and found.name is not None
    plain_wanted = isinstance(wanted, Dim) and wanted.name is not None
    return (not plain_found, not plain_wanted, len(names_in(found)))


def solve(expression: Size, symbol: str, value: int, known: Mapping[str, int]) -> int | None:
    """The symbol's size in ``expression = value``, rounded down; ``None`` unless it is linear.

    Args:
        expression: of the symbol and of known names.
        symbol: the name wanted.
        value: of the expression.
        known: size of the other names.

    >>> solve(2 * Dim.of("n") + Dim.of("past"), "n", 9, {"past": 1})
    4
    """
    try:
        found = _solve(substitute(expression, known), symbol, value)
    except ZeroDivisionError:
        return None
    return found if isinstance(found, int) else None


def _solve(expression: Size, symbol: str, value: Size) -> Size | None:
    """The symbol's size in ``expression = value``, when the expression is linear in it."""
    if isinstance(expression, int) or any(
        atom.op and symbol in names_in(Dim({(atom,): 1}))
        for monomial in expression.terms
        for atom in monomial
    ):
        return None
    at_zero, at_one, at_two = (substitute(expression, {symbol: n}) for n in (0, 1, 2))
    slope = at_one - at_zero
    if not isinstance(slope, int) or slope == 0 or at_two - at_one != slope:
        return None
    return (value - at_zero) // slope
