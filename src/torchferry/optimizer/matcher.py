"""Find a pattern in a graph: every way it fits at a node, and where it came furthest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from torchferry.optimizer import facts
from torchferry.optimizer.pattern import (
    ANY_OPERATOR,
    COMMUTATIVE,
    AnyOf,
    Constant,
    NodePattern,
    Optional,
    Out,
    Pattern,
    Rest,
    Var,
)
from torchferry.optimizer.rule import Declined, Rule

__all__ = ["Match", "Miss", "matches"]

_FLOAT32 = float(np.finfo(np.float32).eps)
_MOST = 1024  # elements of a constant that is compared


@dataclass(frozen=True)
class Match:
    """One way a rule's pattern fits.

    Attributes:
        found: what each name is bound to: a value, a node, ``None``, or a tuple of values.
        nodes: the matched nodes, the root first.
        replaced: the values that the rewrite is to replace, the root's first.
    """

    found: dict[str, Any]
    nodes: tuple[ir.Node, ...]
    replaced: tuple[ir.Value, ...]


@dataclass
class Miss:
    """Where a pattern came furthest without fitting.

    Attributes:
        matched: how many nodes fitted.
        reason: what did not.
        node: the root that the search began with.
    """

    matched: int = -1
    reason: str = ""
    node: ir.Node | None = None

    def note(self, matched: int, reason: str, node: ir.Node | None) -> None:
        """Keep the reason if the pattern never came this far before."""
        if matched > self.matched:
            self.matched, self.reason, self.node = matched, reason, node


def matches(rule: Rule, node: ir.Node, miss: Miss | None = None) -> Iterator[Match]:
    """Every way the pattern of a rule fits with this node as its root.

    Args:
        rule: whose pattern.
        node: the root, in a graph.
        miss: is told where the pattern did not fit.
    """
    for root in rule.roots:
        if _fits_operator(root.node, node):
            search = _Search(node, miss)
            for _ in search.outputs((root, *rule.outputs[1:]), node):
                yield Match(dict(search.found), tuple(search.nodes.values()), search.replaced())


def _fits_operator(pattern: NodePattern, node: ir.Node) -> bool:
    types = pattern.op_types
    return (node.op_type in types and node.domain == pattern.domain) or types[0] == ANY_OPERATOR


@dataclass
class _Search:
    """A depth-first search; each step binds, yields once for each way on, and unbinds."""

    root: ir.Node
    miss: Miss | None
    found: dict[str, Any] = field(default_factory=dict)
    nodes: dict[NodePattern, ir.Node] = field(default_factory=dict)
    sinks: list[Out] = field(default_factory=list)

    def replaced(self) -> tuple[ir.Value, ...]:
        """The values of the root (all of them if it is any node) and of the further outputs."""
        first, *others = self.sinks
        whole = first.node.op_types[0] == ANY_OPERATOR
        values = self.root.outputs if whole else (self.root.outputs[first.index],)
        return (*values, *(self.nodes[out.node].outputs[out.index] for out in others))

    def outputs(self, outputs: Sequence[Any], root: ir.Node) -> Iterator[None]:
        self.sinks = list(outputs)
        for _ in self._node(outputs[0].node, root):
            yield from self._further(outputs[1:])

    def _further(self, outputs: Sequence[Out]) -> Iterator[None]:
        if not outputs:
            yield
            return
        node = outputs[0].node
        candidates = [self.nodes[node]] if node in self.nodes else self._readers(node)
        for candidate in candidates:
            for _ in self._node(node, candidate):
                yield from self._further(outputs[1:])

    def _readers(self, pattern: NodePattern) -> list[ir.Node]:
        """Nodes that may fit a pattern, reached upwards from what is bound already."""
        reached: dict[ir.Node, None] = {}
        for item in pattern.inputs:
            values: Iterable[ir.Value] = ()
            if isinstance(item, Var) and isinstance(self.found.get(item.name), ir.Value):
                values = (self.found[item.name],)
            elif isinstance(item, Out):
                known = self.nodes.get(item.node)
                below = [known] if known else self._readers(item.node)
                values = [node.outputs[item.index] for node in below]
            for value in values:
                reached |= dict.fromkeys(value.consumers())
        taken = set(self.nodes.values())
        return [n for n in reached if _fits_operator(pattern, n) and n not in taken]

    def _miss(self, reason: str) -> None:
        if self.miss is not None:
            self.miss.note(len(self.nodes), reason, self.root)

    # One pattern each --------------------------------------------------------------------------

    def _value(self, pattern: Pattern, value: ir.Value | None) -> Iterator[None]:
        if isinstance(pattern, Out):
            node = value.producer() if value is not None else None
            if node is None or value is None or value.index() != pattern.index:
                self._miss(f"{_told(value)} is not made by {' or '.join(pattern.node.op_types)}")
            else:
                yield from self._node(pattern.node, node)
        elif isinstance(pattern, Var):
            if value is None:
                self._miss(f"there is no {pattern.name}")
            else:
                yield from self._bind(pattern.name, value)
        elif isinstance(pattern, Constant):
            if _accepts(pattern.accepts, value):
                yield from self._bind(pattern.name, value)
            else:
                self._miss(f"{_told(value)} is not the constant asked for")
        elif isinstance(pattern, AnyOf):
            for option in pattern.options:
                yield from self._value(option, value)
        elif isinstance(pattern, Optional):
            if value is not None:
                yield from self._value(pattern.pattern, value)
            else:
                yield from self._bind(getattr(pattern.pattern, "name", None), None)

    def _bind(self, name: str | None, item: Any) -> Iterator[None]:
        if name is None:
            yield
        elif name not in self.found:
            self.found[name] = item
            yield
            del self.found[name]
        elif self.found[name] is item:
            yield
        else:
            self._miss(f"{name} is another value here")

    def _node(self, pattern: NodePattern, node: ir.Node) -> Iterator[None]:
        if pattern in self.nodes:
            if self.nodes[pattern] is node:
                yield
            else:
                self._miss(f"{node.op_type} is another node here")
            return
        reason = _mismatch(pattern, node)
        if reason is None and node.graph is not self.root.graph:
            reason = f"{node.op_type} stands in another graph"
        if reason is not None:
            self._miss(reason)
            return
        self.nodes[pattern] = node
        for inputs in _orders(pattern, node):
            for _ in self._bind(pattern.name, node):
                yield from self._inputs(pattern.inputs, inputs)
        del self.nodes[pattern]

    def _inputs(
        self, patterns: Sequence[Pattern], values: Sequence[ir.Value | None]
    ) -> Iterator[None]:
        if not patterns:
            if any(value is not None for value in values):
                self._miss("the node has more inputs")
            else:
                yield
            return
        if isinstance(patterns[0], Rest):
            yield from self._bind(patterns[0].name, tuple(values))
            return
        for _ in self._value(patterns[0], values[0] if values else None):
            yield from self._inputs(patterns[1:], values[1:])


def _orders(pattern: NodePattern, node: ir.Node) -> Iterator[Sequence[ir.Value | None]]:
    yield node.inputs
    if len(node.inputs) == 2 == len(pattern.inputs) and not node.domain:
        left, right = node.inputs
        if left is not right and node.op_type in COMMUTATIVE:
            yield right, left


def _mismatch(pattern: NodePattern, node: ir.Node) -> str | None:
    """Why a node is not of this kind, its inputs aside."""
    if not _fits_operator(pattern, node):
        return f"{node.op_type} is not {' or '.join(pattern.op_types)}"
    if pattern.outputs is not None and len(node.outputs) != pattern.outputs:
        return f"{node.op_type} has {len(node.outputs)} outputs, not {pattern.outputs}"
    for name, wanted in pattern.attributes.items():
        value = _attribute(node, name)
        if not (wanted(value) if callable(wanted) else value == wanted):
            return f"{node.op_type} has {name}={value}"
    if pattern.name is None:
        for name in node.attributes.keys() - pattern.attributes.keys():
            value = _attribute(node, name)
            if value != _default(node.domain, node.op_type, name):
                return f"{node.op_type} has {name}={value}, which the pattern does not mention"
    return None


def _attribute(node: ir.Node, name: str) -> Any:
    try:
        found = facts.attribute(node, name)
    except Declined:
        return "an attribute of the function"
    return _default(node.domain, node.op_type, name) if found is None else found


@lru_cache(1024)
def _default(domain: str, op_type: str, name: str) -> Any:
    """The default of an attribute; ``None`` when it has none, or the operator is not ONNX's."""
    try:
        attribute = onnx.defs.get_schema(op_type, domain).attributes[name]
    except (KeyError, onnx.defs.SchemaError):
        return None
    if not attribute.default_value.type:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def _accepts(wanted: Any, value: ir.Value | None) -> bool:
    tensor = facts.constant(value)
    if tensor is None:
        return False
    if wanted is None:
        return True
    if tensor.size > _MOST:
        return False
    content = tensor.numpy()
    if callable(wanted):
        return bool(wanted(content))
    want = np.asarray(wanted)
    # A scalar may have one axis; with more it could give what it meets more axes too.
    if want.size != content.size or content.ndim > max(1, want.ndim):
        return False
    if content.dtype.kind in "iub":
        return bool(np.array_equal(content.reshape(-1), want.reshape(-1)))
    if content.dtype.kind not in "fV":
        return False
    near = np.abs(content.reshape(-1).astype(np.float64) - want.reshape(-1))
    return bool(np.all(near <= 2 * _resolution(tensor.dtype) * np.abs(want.reshape(-1))))


def _resolution(dtype: ir.DataType) -> float:
    narrow = {ir.DataType.FLOAT16: 2.0**-10, ir.DataType.BFLOAT16: 2.0**-7}
    return narrow.get(dtype, _FLOAT32)


def _told(value: ir.Value | None) -> str:
    return "a missing input" if value is None else str(value.name)
