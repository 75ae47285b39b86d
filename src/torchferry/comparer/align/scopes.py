"""Scopes of an ONNX graph in the words of a model that it holds a part of, or is a part of.

A model is often exported inside another that sorts its arguments, so that every scope begins with
a path that the model itself does not know (``inner.layers.0``); or a part of it is exported alone,
and that path is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import onnx_ir as ir

from torchferry.comparer.align.provenance import scopes_of
from torchferry.comparer.run.piece import reads

__all__ = ["Move", "module_ends", "move_between"]

_DEEP = 3  # modules around a model, at the most


@dataclass(frozen=True)
class Move:
    """How paths of one model become those of another.

    Attributes:
        taken: what they begin with that the other does not know.
        given: what those of the other begin with.
    """

    taken: str = ""
    given: str = ""

    def __call__(self, path: str) -> str:
        """The path in the other model; ``""`` for what is not there.

        >>> Move("inner", "")("inner.layers.0"), Move("", "model")("layers.0")
        ('layers.0', 'model.layers.0')
        """
        if not self.taken:
            return _joined(self.given, path)
        if path.startswith(f"{self.taken}."):
            return _joined(self.given, path.removeprefix(f"{self.taken}."))
        return self.given if path == self.taken else ""


def _joined(first: str, path: str) -> str:
    return f"{first}.{path}" if first and path else first or path


def move_between(paths: Collection[str], known: Collection[str]) -> Move:
    """How paths become known ones: as they are if most are, else so that as many as possible do.

    Args:
        paths: of one model.
        known: of the other.

    >>> move_between({"inner", "inner.a", "inner.b.0"}, {"a", "b", "b.0"})
    Move(taken='inner', given='')
    """
    there = set(known) - {""}

    def count(move: Move) -> int:
        return len({move(path) for path in paths} & there)

    if 2 * count(Move()) >= len(paths):
        return Move()
    moves = [Move(a, b) for a in _beginnings(paths) for b in _beginnings(there)]
    return max(moves, key=count)  # the first of those that are as good: the least is changed


def _beginnings(paths: Collection[str]) -> list[str]:
    """What most of the paths begin with, by number of steps from none on."""
    found = [""]
    for steps in range(1, _DEEP + 1):
        many = Counter(
            ".".join(path.split(".")[:steps]) for path in paths if path.count(".") >= steps
        )
        if not many:
            break
        found.append(max(many, key=many.__getitem__))
    return found


def module_ends(graph: ir.Graph, move: Move) -> dict[str, list[ir.Value]]:
    """What leaves each module: its values that are read outside of it, in the order of the graph.

    Of a module that nothing is read of, its last value stands there.

    Args:
        graph: whose nodes say in which modules they stand.
        move: how their paths become those that are wanted.
    """
    scopes = {node: [path for p in scopes_of(node) if (path := move(p))] for node in graph}
    last: dict[str, ir.Value] = {}
    for node, paths in scopes.items():
        if node.outputs and node.op_type not in ("Constant", "Identity"):
            last |= dict.fromkeys(paths, node.outputs[0])
    place = {value: index for index, node in enumerate(scopes) for value in node.outputs}
    # Outputs of the graph are read outside of every module.
    read = [(value, paths) for node, paths in scopes.items() for value in reads(node)]
    exits: dict[str, dict[ir.Value, None]] = defaultdict(dict)
    for value, paths in [*read, *((value, []) for value in graph.outputs)]:
        producer = value.producer()
        for path in scopes.get(producer, ()) if producer is not None else ():
            if path not in paths:
                exits[path].setdefault(value)
    ends = {path: [value] for path, value in last.items()}
    return ends | {path: sorted(values, key=place.__getitem__) for path, values in exits.items()}
