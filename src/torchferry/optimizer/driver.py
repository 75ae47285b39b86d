"""Apply rules until none applies: an index by root operator and a list of nodes to look at."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from torchferry.errors import RuleBroke
from torchferry.graph.subgraph import subgraphs
from torchferry.optimizer.matcher import Match, Miss, matches
from torchferry.optimizer.pattern import ANY_OPERATOR
from torchferry.optimizer.place import Place
from torchferry.optimizer.replace import replace
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.tally import Tally

__all__ = ["Verifier", "apply_rules", "remove_dead"]

Verifier = Callable[[str, Sequence[ir.Node]], None]
"""Called after every rewrite with the name of the rule and its new nodes."""

_REWRITES_PER_NODE = 20


def apply_rules(
    model: ir.Model, rules: Sequence[Rule], tally: Tally, verify: Verifier | None = None
) -> int:
    """Rewrite a model until no rule applies any longer.

    Nodes are looked at in order; after a rewrite, the new nodes, the readers of the values that
    changed, as far as a pattern reaches, and the readers of what lost one. A node that nobody
    reads is removed.

    Args:
        model: is changed in place; a graph's nodes stand in order.
        rules: the earlier ones are tried first.
        tally: is told what was done.
        verify: is called after every rewrite.

    Returns:
        How many rewrites were made.

    Raises:
        RuleBroke: a rule made what no rule may, or rules undo one another for ever.
    """
    return _Run(model, rules, tally, verify).run()


def remove_dead(model: ir.Model) -> None:
    """Remove nodes that nobody reads, and initializers that no node reads."""
    apply_rules(model, (), Tally())
    for graph in model.graphs():
        for name, value in list(graph.initializers.items()):
            if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                del graph.initializers[name]


class _Run:
    def __init__(
        self, model: ir.Model, rules: Sequence[Rule], tally: Tally, verify: Verifier | None
    ) -> None:
        self.model, self.tally, self.verify = model, tally, verify
        self.place = Place(model)
        self.opsets = {f.graph: f.opset_imports for f in model.functions.values()}
        self.index: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        self.anywhere: list[Rule] = []
        self.depth: dict[tuple[str, str], int] = defaultdict(lambda: 1)
        for rule in rules:
            self._enter(rule)
        self.reach = max(self.depth.values(), default=1)
        nodes = self.place.nodes
        self.left = _REWRITES_PER_NODE * len(nodes) + 100
        self.work = deque(nodes)
        self.queued = set(nodes)

    def _enter(self, rule: Rule) -> None:
        for root in rule.roots:
            for op_type in root.node.op_types:
                if op_type == ANY_OPERATOR:
                    self.anywhere.append(rule)
                    continue
                key = (root.node.domain, op_type)
                self.depth[key] = max(self.depth[key], rule.depth)
                if rule not in self.index[key]:
                    self.index[key].append(rule)

    def run(self) -> int:
        done = 0
        while self.work:
            node = self.work.popleft()
            self.queued.discard(node)
            if not self.place.stands(node):
                continue
            if self._dead(node):
                self._sweep([node])
                continue
            found = self.index.get((node.domain, node.op_type), ())
            for rule in (*self.anywhere, *found):
                if self._try(rule, node):
                    done += 1
                    break
            if done > self.left:
                (worst, times), *_ = self.tally.applied.most_common(1)
                raise RuleBroke(f"{worst} was applied {times} times without an end", rule=worst)
        return done

    def _try(self, rule: Rule, node: ir.Node) -> bool:
        if not rule.starts(node) or self._opsets(node).get("", 0) < rule.since:
            return False
        miss = Miss() if rule.name == self.tally.explain else None
        declined = False
        for match in matches(rule, node, miss):
            try:
                self._check_interior(rule, match)
                needs = rule.checked(match.found)
                lacking = self.tally.missing(needs)
                require(not lacking, lacking)
                opsets, dump = self._opsets(node), self.tally.dump
                before = dump.part(match.nodes, opsets) if dump is not None else None
                new = replace(rule, match, self.place, opsets)
            except Declined as reason:
                self.tally.decline(rule.name, str(reason), node, len(match.nodes))
                declined = True
                continue
            if dump is not None and before is not None:
                dump.write(rule.name, before, dump.part(new, opsets) if new else None)
            self._follow(match, new)
            self.tally.applied[rule.name] += 1
            self.tally.needs.update(needs)
            if self.verify is not None:
                self.verify(rule.name, new)
            return True
        if miss is not None and miss.matched > 0 and not declined:
            self.tally.misses.append(miss)
        return False

    def _opsets(self, node: ir.Node) -> dict[str, int]:
        graph = node.graph
        while graph in self.place.owners:
            graph = self.place.owners[graph].graph
        return self.model.opset_imports if graph is None else self.opsets.get(
            graph, self.model.opset_imports
        )  # fmt: skip

    def _check_interior(self, rule: Rule, match: Match) -> None:
        """Decline when a value that would vanish is read by somebody else."""
        inner, replaced = set(match.nodes), set(match.replaced)
        for node in match.nodes[:1] if rule.keeps_interior else match.nodes:
            for value in node.outputs:
                if value in replaced:
                    continue
                if value.is_graph_output():
                    raise Declined(f"the result of {node.op_type} is an output of the graph")
                if any(user not in inner for user in value.consumers()):
                    raise Declined(f"the result of {node.op_type} is used elsewhere")

    # What to look at next ----------------------------------------------------------------------

    def _follow(self, match: Match, new: Sequence[ir.Node]) -> None:
        self._add(new)
        losers = [value for node in match.nodes for value in node.inputs if value is not None]
        self._sweep(match.nodes)
        makers = [value.producer() for value in losers]
        for node in (*new, *(maker for maker in makers if maker is not None)):
            self._readers(node)
        if not new:
            for value in match.found.values():
                if isinstance(value, ir.Value):
                    self._add_readers(value.consumers())

    def _readers(self, node: ir.Node) -> None:
        if self.place.stands(node):
            self._add_readers(user for value in node.outputs for user in value.consumers())

    def _add_readers(self, nodes: Iterable[ir.Node]) -> None:
        """Queue nodes and those behind them, as far as the deepest pattern reaches."""
        seen: set[ir.Node] = set()
        front, distance = list(nodes), 2
        while front and distance <= max(2, self.reach):
            front = [node for node in dict.fromkeys(front) if node not in seen]
            seen.update(front)
            near = distance == 2
            self._add(n for n in front if near or self.depth[n.domain, n.op_type] >= distance)
            front = [u for node in front for value in node.outputs for u in value.consumers()]
            distance += 1

    def _add(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if node not in self.queued and self.place.stands(node):
                self.queued.add(node)
                self.work.append(node)

    # Dead code ---------------------------------------------------------------------------------

    def _dead(self, node: ir.Node) -> bool:
        return not any(value.uses() or value.is_graph_output() for value in node.outputs)

    def _sweep(self, nodes: Iterable[ir.Node]) -> None:
        """Remove the dead among these nodes, and whatever only they kept alive."""
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if not self.place.stands(node) or not self._dead(node):
                continue
            stack += [m for v in node.inputs if v is not None and (m := v.producer()) is not None]
            for body in _whole(node):
                stack += [m for v in body.inputs if v is not None and (m := v.producer())]
                self._forget(body)
            self.place.remove(node)

    def _forget(self, node: ir.Node) -> None:
        """Let a node of a removed subgraph read nothing outside."""
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def _whole(node: ir.Node) -> list[ir.Node]:
    """The nodes of the subgraphs of a node."""
    return [inner for graph in subgraphs(node) for inner in graph.all_nodes()]
