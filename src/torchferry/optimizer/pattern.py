"""The shape of a subgraph, as data: ``p.Mul(x, p.Sigmoid(x))``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ANY_OPERATOR",
    "COMMUTATIVE",
    "AnyOf",
    "Constant",
    "NodePattern",
    "Ops",
    "Optional",
    "Out",
    "Pattern",
    "Rest",
    "Var",
    "depth_of",
    "roots_of",
]

ANY_OPERATOR = "*"
"""The operator of a pattern that fits every node."""

_COMMUTATIVE = "Add And BitwiseAnd BitwiseOr BitwiseXor Equal Max Mean Min Mul Or Sum Xor"
COMMUTATIVE = frozenset(_COMMUTATIVE.split())
"""Operators whose two inputs may stand in either order."""


@dataclass(frozen=True)
class Var:
    """Any value. The same one wherever the name stands again."""

    name: str


@dataclass(frozen=True)
class Optional:
    """A last input that may be absent; its name is then bound to ``None``."""

    pattern: Pattern


@dataclass(frozen=True)
class Rest:
    """All inputs from here on, none or more: a tuple under this name."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A value that is known before the model runs, and what it must be."""

    accepts: Any = None
    name: str | None = None


@dataclass(frozen=True)
class AnyOf:
    """The first of several patterns that fits, with all that is around it."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True, eq=False)
class NodePattern:
    """One node; the same one wherever this object stands again.

    Attributes:
        op_types: the operators it may have.
        outputs: how many outputs it has; ``None`` when that does not matter.
        attributes: by name, the value each must have, or a predicate of its value.
        name: what the node is bound to. Of a node without a name, every attribute that the pattern
            does not mention must have its default.
    """

    op_types: tuple[str, ...]
    domain: str
    inputs: tuple[Pattern, ...]
    outputs: int | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Out:
    """An output of a node."""

    node: NodePattern
    index: int = 0


Pattern = Var | Optional | Rest | Constant | AnyOf | Out


class Ops:
    """Makes patterns: any operator is a method, and numbers among the inputs are constants.

    >>> p, x = Ops(), Var("x")
    >>> gate = p.Mul(x, p.Sigmoid(x, name="gate"))
    >>> gate.node.op_types, gate.node.inputs[1].node.name
    (('Mul',), 'gate')
    """

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(f"no pattern is made by {op_type}, and no operator is called so")

        def make(*inputs: Any, **settings: Any) -> Any:
            return self.op(op_type, *inputs, **settings)

        return make

    def op(
        self,
        op_types: str | Sequence[str],
        *inputs: Any,
        domain: str = "",
        outputs: int | None = None,
        name: str | None = None,
        **attributes: Any,
    ) -> Any:
        """A node of one of several operators.

        Args:
            op_types: an operator or several.
            inputs: patterns, numbers, lists of numbers, or ``None`` for an input left out.
            domain: of the operators.
            outputs: how many outputs the node has; then a tuple of them comes back.
            name: what the node is bound to, for ``check`` and ``rewrite``.
            attributes: a value, or a predicate of the value; see `NodePattern`.
        """
        names = (op_types,) if isinstance(op_types, str) else tuple(op_types)
        given = tuple(_pattern(item) for item in inputs)
        node = NodePattern(names, domain, given, outputs, attributes, name)
        return Out(node) if outputs is None else tuple(Out(node, i) for i in range(outputs))

    def any_node(self, name: str) -> Out:
        """Any node at all, bound to ``name``; only as the root of a pattern."""
        return Out(NodePattern((ANY_OPERATOR,), "", (Rest("_"),), name=name))

    def any_of(self, *options: Any) -> AnyOf:
        """One of several patterns, tried in this order."""
        return AnyOf(tuple(_pattern(option) for option in options))

    def constant(self, accepts: Any = None, name: str | None = None) -> Constant:
        """A constant.

        Args:
            accepts: the number, or nested list of numbers, that it must be (floats as near as
                float32, or a narrower type of its own, can tell), a predicate of the array, or
                ``None`` for any.
            name: what the value is bound to.
        """
        return Constant(accepts, name)

    def optional(self, pattern: Any) -> Optional:
        """An input that may be absent."""
        return Optional(_pattern(pattern))

    def rest(self, name: str) -> Rest:
        """All the inputs from here on."""
        return Rest(name)


def _pattern(item: Any) -> Pattern:
    if isinstance(item, Pattern):
        return item
    if item is None:
        return Optional(Constant(lambda _: False))  # nothing is there
    if isinstance(item, tuple):
        raise TypeError("an input is one value: give one of the outputs that outputs= made")
    return Constant(item)


def roots_of(pattern: Pattern) -> Iterator[Out]:
    """The nodes a pattern can end in."""
    if isinstance(pattern, AnyOf):
        for option in pattern.options:
            yield from roots_of(option)
    elif isinstance(pattern, Out):
        yield pattern
    else:
        raise TypeError(f"a pattern ends in a node, not in {pattern}")


def depth_of(pattern: Pattern) -> int:
    """How many nodes lie behind one another at most."""
    if isinstance(pattern, Out):
        return 1 + max((depth_of(item) for item in pattern.node.inputs), default=0)
    if isinstance(pattern, AnyOf):
        return max(depth_of(option) for option in pattern.options)
    return depth_of(pattern.pattern) if isinstance(pattern, Optional) else 0
