"""A symbolic size as a canonical polynomial: equal expressions are equal objects.

A polynomial maps monomials to integer coefficients. A monomial is a sorted tuple of atoms, and an
atom is a name (``batch``) or an operation without polynomial form (``(seq + 1)//2``, ``n % 4``,
``max(a, b)``). Expressions that cancel to a constant collapse to ``int``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, total_ordering

__all__ = [
    "Dim",
    "Size",
    "evaluate",
    "is_positive",
    "maximum",
    "minimum",
    "names_in",
    "substitute",
]


@total_ordering
@dataclass(frozen=True)
class Atom:
    """A name (``op`` is empty) or ``op`` applied to sizes: ``//``, ``%``, ``max``, ``min``."""

    op: str
    args: tuple[str | Size, ...]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:  # sizes are sorted by it, deep ones too
        if not self.op:
            return str(self.args[0])
        if self.op in ("max", "min"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (_grouped(a) for a in self.args)
        return f"{left}{self.op}{right}" if self.op == "//" else f"{left} {self.op} {right}"

    def __lt__(self, other: Atom) -> bool:
        return str(self) < str(other)


Monomial = tuple[Atom, ...]


class Dim:
    """A size that is not a constant: ``Dim.of("past") + Dim.of("seq")``.

    Supports ``+ - * // %`` with integers and other sizes. ``//`` and ``%`` floor, as Python's do.
    Ordering is undefined on purpose: ``batch < seq`` has no answer.

    >>> batch, seq = Dim.of("batch"), Dim.of("seq")
    >>> str(1 + seq), seq - seq + 4, (batch * seq * 64) // 64 == seq * batch
    ('seq + 1', 4, True)
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = dict(terms)
        self._hash = hash(frozenset(self.terms.items()))

    @staticmethod
    def of(name: str) -> Dim:
        """The size called ``name``.

        Raises:
            ValueError: ``name`` is empty.
        """
        if not name:
            raise ValueError("a dimension needs a name; got an empty string")
        return Dim({(Atom("", (name,)),): 1})

    @property
    def name(self) -> str | None:
        """The name, when the size is just one name; ``None`` for an expression."""
        if len(self.terms) == 1:
            (monomial, coefficient), *_ = self.terms.items()
            if coefficient == 1 and len(monomial) == 1 and not monomial[0].op:
                return str(monomial[0])
        return None

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _collapse(terms)

    def __mul__(self, other: Size) -> Size:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in _terms(other).items():
                monomial = tuple(sorted(left + right))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _collapse(terms)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __floordiv__(self, other: Size) -> Size:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return _floordiv(other, self)

    def __mod__(self, other: Size) -> Size:
        return _mod(self, other)

    def __rmod__(self, other: int) -> Size:
        return _mod(other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda t: (not t[0], [str(a) for a in t[0]]))
        parts = []
        for monomial, coefficient in ordered:
            alone = len(monomial) == 1 and coefficient == 1
            factors = [
                str(a) if alone or a.op in ("", "max", "min") else f"({a})" for a in monomial
            ]
            if coefficient == -1 and factors:
                factors[0] = f"-{factors[0]}"
            elif coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({str(self)!r})"


Size = Dim | int


def maximum(*sizes: Size) -> Size:
    """The largest of the sizes, kept symbolic unless all are constants."""
    return _extremum("max", sizes)


def minimum(*sizes: Size) -> Size:
    """The smallest of the sizes, kept symbolic unless all are constants."""
    return _extremum("min", sizes)


def names_in(size: Size) -> frozenset[str]:
    """Every name the size depends on.

    >>> sorted(names_in(Dim.of("past") + Dim.of("seq")))
    ['past', 'seq']
    """
    return frozenset(_names(size))


def is_positive(size: Size) -> bool:
    """Whether a size is more than 0 for all sizes of its names, 0 among them.

    >>> is_positive(Dim.of("n") + 1), is_positive(2 * Dim.of("n")), is_positive(Dim.of("n") - 3)
    (True, False, False)
    """
    terms = _terms(size)
    plain = all(not atom.op for monomial in terms for atom in monomial)
    return plain and terms.get((), 0) > 0 and min(terms.values()) > 0


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """Replace names by other sizes; names not in ``values`` stay.

    >>> substitute(Dim.of("s0") + 1, {"s0": Dim.of("seq")})
    Dim('seq + 1')

    Raises:
        ZeroDivisionError: a divisor became 0.
    """
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms.items():
        product: Size = coefficient
        for atom in monomial:
            product = product * _substitute_atom(atom, values)
        total = total + product
    return total


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The size as a number.

    Raises:
        KeyError: a name has no value in ``values``.
    """
    result = substitute(size, values)
    if isinstance(result, Dim):
        raise KeyError(f"no value for {', '.join(sorted(names_in(result)))} in {size}")
    return result


def _terms(size: Size) -> Mapping[Monomial, int]:
    if isinstance(size, Dim):
        return size.terms
    return {(): size} if size else {}


def _collapse(terms: Mapping[Monomial, int]) -> Size:
    kept = {monomial: c for monomial, c in terms.items() if c}
    return Dim(kept) if kept.keys() - {()} else kept.get((), 0)


def _grouped(operand: str | Size) -> str:
    text = str(operand)
    simple = isinstance(operand, (int, str)) or operand.name is not None
    return text if simple else f"({text})"


def _operation(op: str, *args: Size) -> Dim:
    return Dim({(Atom(op, args),): 1})


def _floordiv(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if left == right:
        return 1
    if left == 0 or right == 1:
        return left
    if isinstance(right, int) and right != 0:
        # floor((right * whole + rest) / right) = whole + floor(rest / right)
        whole = _collapse({m: c // right for m, c in _terms(left).items() if c % right == 0})
        rest = _collapse({m: c for m, c in _terms(left).items() if c % right})
        if isinstance(rest, int):
            return whole + rest // right
        return whole + _operation("//", rest, right)
    if isinstance(right, Dim) and len(right.terms) == 1 and isinstance(left, Dim):
        quotient = _divide_exactly(left, right)
        if quotient is not None:
            return quotient
    return _operation("//", left, right)


def _divide_exactly(left: Dim, right: Dim) -> Size | None:
    """``left / right`` when every term of ``left`` holds the single term of ``right``."""
    ((divisor, by),) = right.terms.items()
    terms: dict[Monomial, int] = {}
    for monomial, coefficient in left.terms.items():
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % by:
            return None
        terms[tuple(rest)] = coefficient // by
    return _collapse(terms)


def _mod(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if isinstance(right, int) and right != 0:
        left = _collapse({m: c % right for m, c in _terms(left).items()})
        if isinstance(left, int):
            return left
    if left in (right, 0):
        return 0
    return _operation("%", left, right)


def _extremum(op: str, sizes: tuple[Size, ...]) -> Size:
    if not sizes:
        raise ValueError(f"{op} of no size")
    pick = max if op == "max" else min
    constants = [s for s in sizes if isinstance(s, int)]
    symbols = sorted({s for s in sizes if isinstance(s, Dim)}, key=str)
    if not symbols:
        return pick(constants)
    operands: list[Size] = [*symbols, *([pick(constants)] if constants else [])]
    return operands[0] if len(operands) == 1 else _operation(op, *operands)


def _substitute_atom(atom: Atom, values: Mapping[str, Size]) -> Size:
    if not atom.op:
        name = str(atom.args[0])
        return values.get(name, Dim.of(name))
    args = [substitute(a, values) for a in atom.args if not isinstance(a, str)]
    if atom.op == "//":
        return _floordiv(args[0], args[1])
    if atom.op == "%":
        return _mod(args[0], args[1])
    return _extremum(atom.op, tuple(args))


def _names(size: Size) -> Iterator[str]:
    if isinstance(size, Dim):
        for monomial in size.terms:
            for atom in monomial:
                for arg in atom.args:
                    if isinstance(arg, str):
                        yield arg
                    else:
                        yield from _names(arg)
