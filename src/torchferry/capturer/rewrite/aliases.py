"""Changes in place that rewritten control flow would lose, found in the captured program.

Rewritten code copies what goes into a branch or a loop, and what comes out. Python copies
nothing: two names may be one tensor, and a change under one name shows under the other. Where
that would make a difference in a program, the construct is named here.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from torchferry.capturer.rewrite.subgraph import APART_FORMAT, COPY_FORMAT
from torchferry.errors import CaptureError
from torchferry.seams.pytorch import FakeTensor, HigherOrderOperator, OpOverload, schema_of
from torchferry.values.source_line import innermost_place

__all__ = ["Lost", "constructs_of", "find_lost", "leave_out"]

# They return what they are given in evaluation mode, which their schemas do not say.
_MAYBE = {torch.ops.aten.dropout.default, torch.ops.aten.feature_dropout.default,
          torch.ops.aten.alpha_dropout.default}  # fmt: skip


@dataclass(frozen=True)
class Lost:
    """A rewritten construct under which a change in place is lost.

    Attributes:
        where: ``file:line`` of the construct.
        reason: which change, and what to write.
    """

    where: str
    reason: str


def constructs_of(program: ExportedProgram) -> Iterator[tuple[str, int]]:
    """``file:line`` of the user's code that became each branch or loop, and how many are in it."""
    for node in program.graph_module.graph.nodes:
        if (construct := _construct(node)) is not None:
            yield _line(node), sum(map(_count, construct.bodies))


def _count(module: GraphModule) -> int:
    found = [one for node in module.graph.nodes if (one := _construct(node)) is not None]
    return len(found) + sum(_count(body) for one in found for body in one.bodies)


def find_lost(program: ExportedProgram, places: Collection[str]) -> tuple[Lost, ...]:
    """The rewritten constructs of a program that lose a change in place.

    Args:
        program: as torch.export gives it, not functionalized.
        places: ``file:line`` of what was rewritten; control flow of the user's own is as it is.
            Of code outside ``forward`` torch notes who calls it: where it stands is not known.
    """
    found = _lost(program.graph_module, "") if places else ()
    known = (one if one.where in places else replace(one, where="") for one in found)
    return tuple(dict.fromkeys(known))


def leave_out(lost: Sequence[Lost], leave: dict[str, str]) -> None:
    """Note the constructs that lose a change, so that the next capture does not rewrite them.

    Args:
        lost: what `find_lost` gives.
        leave: ``file:line`` → why; it grows.

    Raises:
        CaptureError: nobody knows where one of them stands.
    """
    leave.update({one.where: one.reason for one in lost})
    if "" in leave:
        raise CaptureError(f"the model cannot be captured with rewritten code: {leave['']}")


def _lost(module: GraphModule, outer: str) -> Iterator[Lost]:
    graph = _Graph(module)
    for node in module.graph.nodes:
        construct = _construct(node)
        if construct is not None and construct.is_ours:
            where = _line(node) or outer
            reason = graph.obstacle(construct) or _unfollowed(construct)
            if reason:
                yield Lost(where, reason)
            for body in construct.bodies:
                yield from _lost(body, where)


def _unfollowed(construct: _Construct) -> str:
    """Why a graph within would not see a tensor of outside, or ``""``."""
    values = (
        value for body in construct.bodies for value in [*vars(body).values(), *body.buffers()]
    )
    if any(isinstance(value, FakeTensor) for value in values):
        return "it reads a tensor of outside in a way that is not followed"
    return ""


@dataclass
class _Construct:
    """A node of control flow.

    Attributes:
        node: it.
        bodies: its graphs.
        operands: what stands for the placeholders of each graph.
        carried: how many of the first operands a loop carries; 0 for a condition.
    """

    node: Node
    bodies: list[GraphModule]
    operands: list[Node | Any]
    carried: int

    @property
    def is_ours(self) -> bool:
        """Whether rewritten code made it, which copies all that comes out."""
        outputs = [one for body in self.bodies for one in _list([*body.graph.nodes][-1].args[0])]
        return all(_copied(one) is not one for one in outputs if isinstance(one, Node))

    @property
    def read(self) -> list[int]:
        """The numbers of the operands that its graphs read."""
        inputs = [[node for node in body.graph.nodes if node.op == "placeholder"]
                  for body in self.bodies]  # fmt: skip
        return [place for place in range(len(self.operands))
                if any(place < len(one) and one[place].users for one in inputs)]  # fmt: skip

    @property
    def results(self) -> dict[int, Node]:
        """The nodes that take its outputs, by their number."""
        users = [user for user in self.node.users if user.target is operator.getitem]
        return {user.args[1]: user for user in users if isinstance(user.args[1], int)}


def _construct(node: Node) -> _Construct | None:
    if not isinstance(node.target, HigherOrderOperator):
        return None
    root, args = node.graph.owning_module, node.args
    bodies = [getattr(root, str(arg.target)) for arg in args
              if isinstance(arg, Node) and arg.op == "get_attr"]  # fmt: skip
    name = str(node.target)
    if name == "cond":
        return _Construct(node, bodies, _operands(args[3]), 0)
    if name == "while_loop":
        carried = _operands(args[2])
        return _Construct(node, bodies, [*carried, *_operands(args[3])], len(carried))
    if name == "scan":
        carried = _operands(args[1])
        return _Construct(node, bodies, [*carried, *_operands(args[2]), *_operands(args[3])],
                          len(carried))  # fmt: skip
    return None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else []


def _operands(value: Any) -> list[Any]:
    """Operands; what was copied since it has two names is the one tensor that it was."""
    return [_copied(one, APART_FORMAT) if isinstance(one, Node) else one for one in _list(value)]


@dataclass
class _Graph:
    """A graph, with the node that made the memory of each, and what is written to.

    Attributes:
        module: it.
        roots: node → the node whose memory it is, or may be, a view of.
        writes: the nodes that write in place, in order, with the roots they write to.
        places: node → its number.
    """

    module: GraphModule
    roots: dict[Node, Node] = field(default_factory=dict)
    writes: list[tuple[Node, Node]] = field(default_factory=list)
    places: dict[Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Follow views and writes."""
        for place, node in enumerate(self.module.graph.nodes):
            self.places[node] = place
            self.roots[node] = node
            if isinstance(node.target, OpOverload):
                self._follow(node, node.target)
            elif node.target is operator.getitem and _construct(node.args[0]) is None:
                self.roots[node] = self.roots[node.args[0]]

    def _follow(self, node: Node, target: OpOverload[..., Any]) -> None:
        returns = any(one.alias_info is not None for one in schema_of(target).returns)
        for number, said in enumerate(schema_of(target).arguments):
            given = node.args[number] if number < len(node.args) else node.kwargs.get(said.name)
            nodes = [one for one in (given, *_list(given)) if isinstance(one, Node)]
            aliased = said.alias_info is not None and returns
            if nodes and (aliased or (target in _MAYBE and number == 0)):
                self.roots[node] = self.roots[nodes[0]]
            if said.alias_info is not None and said.alias_info.is_write:
                self.writes += [(node, self.roots[one]) for one in nodes]

    def obstacle(self, construct: _Construct) -> str:
        """Why a construct loses a change in place, or ``""``."""
        for body in construct.bodies:
            inner = _Graph(body)
            for write, root in inner.writes:
                if reason := self._written_within(construct, inner, write, root):
                    return reason
        return next(self._written_after(construct), "")

    def _written_within(
        self, construct: _Construct, inner: _Graph, write: Node, root: Node
    ) -> str:
        inputs = inner.placeholders
        entry = _copied(root)
        if entry not in inputs:
            return ""  # what was made within
        number = inputs.index(entry)
        operand = construct.operands[number]
        seen = [
            place for place in construct.read if self._same(construct.operands[place], operand)
        ]
        readers = [user for user in entry.users if user.target is not torch.ops.aten.sym_size.int]
        # The next step writes to one of them.
        twice = construct.carried and any(number in pair for pair in inner.shared())
        if root is entry or seen != [number] or len(readers) > 1 or twice:
            return _reason(write, construct.node)
        if any(one is self.roots[operand] for _, one in self._through(construct)):
            return ""
        if later := self._seen_after(self.roots[operand], construct.node):
            return _reason(write, later)
        return ""

    def _written_after(self, construct: _Construct) -> Iterator[str]:
        """Why a tensor that comes out is another's, and one of them is changed afterwards."""
        through = {write for write, _ in self._through(construct)}
        after = [(write, root) for write, root in self.writes if write not in through
                 and self.places[write] > self.places[construct.node]]  # fmt: skip
        for one, other, certain in self._pairs(construct) if after else ():
            for write, root in after:
                twin = {one: other, other: one}.get(root)
                if twin is None or twin is root:
                    continue
                later = self._seen_after(twin, write, inputs=certain)
                if later is not None:
                    yield _reason(write, later)

    def _pairs(self, construct: _Construct) -> Iterator[tuple[Node, Node, bool]]:
        """Results with what they are the same tensor as, and whether more than no step says so."""
        results = construct.results
        for body in construct.bodies:
            inner = _Graph(body)
            made: dict[int, Node] = {}
            for number, root in enumerate(inner.outputs):
                result = results.get(number)
                if result is None or root is None:
                    continue
                entry = _copied(root)
                if entry in inner.placeholders:
                    operand = construct.operands[inner.placeholders.index(entry)]
                    if isinstance(operand, Node):
                        yield result, self.roots[operand], number >= construct.carried
                made[number] = result
            for number, other in inner.shared():
                if number in made and other in made:
                    yield made[other], made[number], True
        for number, operand in enumerate(construct.operands[: construct.carried]):
            if number in results and isinstance(operand, Node):
                yield results[number], self.roots[operand], False  # a loop without a step

    def shared(self) -> list[tuple[int, int]]:
        """The numbers of outputs that are, or may be, one tensor."""
        memories = [set() if root is None else self._memories(root) for root in self.outputs]
        numbers = range(len(memories))
        return [(one, other) for one, other in itertools.combinations(numbers, 2)
                if memories[one] & memories[other]]  # fmt: skip

    def _memories(self, root: Node) -> set[Node]:
        """A root, and those that it may be: of a result of control flow, what a branch gives."""
        found, left = {root}, [root]
        while left:
            new = self._sources.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    @cached_property
    def _sources(self) -> dict[Node, set[Node]]:
        """By result of control flow, the memories that it may be."""
        found: dict[Node, set[Node]] = {}
        for node in self.module.graph.nodes:
            if (construct := _construct(node)) is not None:
                for result, other, _ in self._pairs(construct):
                    found.setdefault(result, set()).add(other)
        return found

    def _through(self, construct: _Construct) -> list[tuple[Node, Node]]:
        """The writes that give a tensor of before a construct what came out of it."""
        results = set(construct.results.values())
        # A loop that may have no step: what it began with, or what came out.
        results |= {user for result in results for user in result.users
                    if user.target is torch.ops.aten.where.self}  # fmt: skip
        return [(write, root) for write, root in self.writes
                if write.target is torch.ops.aten.copy_.default
                and write.args[1] in results]  # fmt: skip

    def _seen_after(self, root: Node, node: Node, *, inputs: bool = True) -> Node | None:
        """The first node after another that reads a memory; an input's is the caller's too."""
        readers = (
            later for later in self.module.graph.nodes if self.places[later] > self.places[node]
            and any(self.roots[one] is root for one in later.all_input_nodes)
        )  # fmt: skip
        return next(readers, root if inputs and root.op == "placeholder" else None)

    def _same(self, one: Any, other: Any) -> bool:
        both = isinstance(one, Node) and isinstance(other, Node)
        return both and self.roots[one] is self.roots[other]

    @property
    def placeholders(self) -> list[Node]:
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    @property
    def outputs(self) -> list[Node | None]:
        """The roots of what is returned, without the copy that is made of it."""
        *_, last = self.module.graph.nodes
        return [
            self.roots[_copied(one)] if isinstance(one, Node) else None
            for one in _list(last.args[0])
        ]


def _copied(node: Node, said: Any = COPY_FORMAT) -> Node:
    """What rewritten code makes a copy of; a copy of the user's says no format, and is itself."""
    ours = node.target is torch.ops.aten.clone.default and node.kwargs.get("memory_format") is said
    source = node.args[0] if ours else node
    return source if isinstance(source, Node) else node


def _reason(write: Node, seen: Node) -> str:
    changed, shown = _line(write), _line(seen)
    by = f" at {changed}" if changed else ""
    if seen.op == "placeholder":
        also = f"is also the input {seen.name}"
    elif seen.op == "output":
        also = "is returned under another name"
    else:
        also = f"is read under another name at {shown}" if shown else "has another name"
    return (
        f"a tensor that is changed in place{by} {also}, which would not see it: give it a copy "
        "(y = x.clone()), or write y = y + 1 for y += 1"
    )


def _line(node: Node) -> str:
    """``file:line`` of the user's code that a node comes from; ``""`` when it is not known."""
    return ":".join(innermost_place(node.stack_trace) or ())
