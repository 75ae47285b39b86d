"""A rewrite: what to find, when not to touch it, what to put in its place.

A rule is a class with an arrow for a docstring and up to three short methods::

    class QuickGelu(Rule):
        '''x * Sigmoid(x)  →  com.microsoft.QuickGelu(x, alpha=1)'''

        def pattern(self, p: Ops, x: Var) -> Any:
            return p.Mul(x, p.Sigmoid(x))

        def check(self, x: ir.Value) -> None:
            require(x.dtype in FLOATS, "x is no float")

        def rewrite(self, b: Block, x: ir.Value) -> Any:
            return b.QuickGelu(x, domain="com.microsoft", alpha=1.0)

``pattern`` gets `Ops` and one `Var` for each further parameter. It returns the last value of the
subgraph or, when more of its values are read from outside, a tuple of them; the first is where
the search begins, and the others may end in nodes of their own.

``check`` and ``rewrite`` name what they need of what was found: the parameters of ``pattern``
(``ir.Value``, or ``None`` for an optional input, or a tuple for ``p.rest``) and every ``name=``
(``ir.Node``; of ``p.constant``, the ``ir.Value``). ``check`` declines by ``require`` or by asking
`torchferry.optimizer.facts` for what is not so. ``rewrite`` gets a `Block` to add nodes to and
returns what takes the place of each returned value, in the same order; or a dictionary from old
values to new ones, when which values are replaced is found out by looking around.

``needs`` says which abilities of onnxruntime (`torchferry.graph.runtime`) the result relies on;
the driver declines if the onnxruntime that will run the model lacks one.

The driver does everything else: order of the inputs of commutative operators, inner values that
others read, where new nodes stand, names, types, shapes and metadata, dead nodes, and whom to look
at again. A module of rules ends with ``RULES``, a tuple of instances; their order is the order of
trial. `torchferry.optimizer.plan` lists those tuples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import onnx_ir as ir

from torchferry.graph.runtime import Ability
from torchferry.optimizer.pattern import Ops, Out, Pattern, Var, depth_of, roots_of

__all__ = ["Declined", "Rule", "require"]


class Declined(Exception):  # noqa: N818  (it is an answer, not an error)
    """What a rule found may not be rewritten; the message is the reason, in a few words."""


def require(condition: object, reason: str) -> None:
    """Decline for this reason unless the condition holds.

    Raises:
        Declined: it does not.
    """
    if not condition:
        raise Declined(reason)


class Rule:
    """A rewrite; see the module. What it is called and where it may be used are attributes.

    Attributes:
        since: the first ONNX opset with the operators as the rule writes them.
        processors: where the rewrite pays, or works at all.
        keeps_interior: whether the rewrite is still right, and pays, when inner values are read
            from outside too; the nodes that make them stay.
    """

    since: int = 13
    processors: frozenset[str] = frozenset({"CPU", "CUDA"})
    keeps_interior: bool = False

    def pattern(self, *args: Any, **kwargs: Any) -> Any:
        """What to find; of ``Ops`` and a ``Var`` for each name."""
        raise NotImplementedError(f"{self.name} has no pattern")

    def starts(self, node: ir.Node) -> bool:
        """Whether it is worth to search from this node; a fast no that is not counted."""
        return True

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Decline, through `require`, where the rewrite would be wrong."""

    def needs(self, *args: Any, **kwargs: Any) -> tuple[Ability, ...]:
        """What onnxruntime must be able to do for the rewrite to be right; of what was found."""
        return ()

    def rewrite(self, *args: Any, **kwargs: Any) -> Any:
        """What to put in its place; of a ``Block`` and what was found."""
        raise NotImplementedError(f"{self.name} has no rewrite")

    @property
    def name(self) -> str:
        """What users call the rule."""
        return type(self).__name__

    @property
    def arrow(self) -> str:
        """The rewrite in one line."""
        return (inspect.getdoc(type(self)) or "").split("\n\n")[0].replace("\n", " ")

    @cached_property
    def outputs(self) -> tuple[Pattern, ...]:
        """The patterns of the values that are replaced; the first is the root."""
        names = list(inspect.signature(self.pattern).parameters)[1:]
        found = self.pattern(Ops(), *(Var(name) for name in names))
        return found if isinstance(found, tuple) else (found,)

    @cached_property
    def roots(self) -> tuple[Out, ...]:
        """The nodes that the search begins with."""
        return tuple(roots_of(self.outputs[0]))

    @cached_property
    def depth(self) -> int:
        """How many nodes lie behind one another in the pattern at most."""
        return max(depth_of(output) for output in self.outputs)

    def checked(self, found: dict[str, Any]) -> tuple[Ability, ...]:
        """Call ``check`` and ``needs`` with what they name.

        Returns:
            What onnxruntime must be able to do.

        Raises:
            Declined: the rewrite would be wrong.
        """
        self.check(**{name: found.get(name) for name in self._check_names})
        return self.needs(**{name: found.get(name) for name in self._needs_names})

    def rewritten(self, block: Any, found: dict[str, Any]) -> Any:
        """Call ``rewrite`` with what it names."""
        return self.rewrite(block, **{name: found.get(name) for name in self._rewrite_names})

    @cached_property
    def _check_names(self) -> list[str]:
        return _names(self.check)

    @cached_property
    def _needs_names(self) -> list[str]:
        return _names(self.needs)

    @cached_property
    def _rewrite_names(self) -> list[str]:
        return _names(self.rewrite)[1:]


def _names(method: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(method).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind not in kinds]
