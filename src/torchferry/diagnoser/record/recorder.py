"""Record the calls of the pieces of a model: what they are given, return, and change."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.diagnoser.record.functions import Function, routed
from torchferry.diagnoser.record.tree import ANY, Mutation, Piece, Record
from torchferry.errors import UsageError
from torchferry.observer.sets import Arguments
from torchferry.observer.tap import tapped
from torchferry.seams.pytorch import version_of
from torchferry.values.clone import Again, clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path, flatten

__all__ = ["recorded"]


@contextmanager
def recorded(root: Piece, traced_functions: Sequence[Function] = ()) -> Iterator[None]:
    """Record every call of every piece made in the block; modules are as before afterwards.

    A function becomes a piece of the module that calls it first, and has the calls of all.

    Modules of PyTorch run without its fused transformer path, as exported programs do. And
    ``torch.cond`` runs the branch that is taken, as Python's ``if`` would: in eager mode it would
    compile both, and the calls in them could not be seen.
    """
    original = torch.cond
    running: list[Piece] = []
    found: dict[Function, _Recorder] = {}
    copies = Again()  # what one module returns and the next takes: one copy

    def route(one: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not running or torch.compiler.is_compiling():
            return one.function(*args, **kwargs)
        if one not in found:
            found[one] = _Recorder(_add_function(running[-1], one), running, copies)
        entered = found[one].enter(args, kwargs)
        outputs = one.function(*args, **kwargs)
        found[one].leave(entered, outputs)
        return outputs

    taps = [_Recorder(piece, running, copies) for piece in root.walk()]
    with tapped(taps), routed(traced_functions, route), disable_fast_paths():
        torch.cond = _eager_cond(original)
        try:
            yield
        finally:
            torch.cond = original


def _add_function(parent: Piece, one: Function) -> Piece:
    name = one.function_name
    path = f"{parent.path}::{name}"
    piece = type(parent)(parent, name, one, parent.level + 1, path=path)
    parent.add_child(piece)
    return piece


def _eager_cond(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def cond(
        pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
    ) -> Any:
        if torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return original(pred, true_fn, false_fn, operands)
        return (true_fn if pred else false_fn)(*operands)

    return cond


Versions = list[tuple[torch.Tensor, int]]
Leaves = dict[Path, tuple[Any, int]]


@dataclass(frozen=True)
class _Entered:
    """What is known of a call while it runs.

    Attributes:
        copied: the arguments as they were.
        args: those by position.
        kwargs: those by name.
        tensors: the tensors in them, where nothing else can change: it takes no more to see that
            the call changed nothing, as hardly any does.
        given: the arguments by their names, where more can.
        before: of these every leaf, and how often it had been written to.
        depth: how many pieces are being called around it.
        start: in seconds.
    """

    copied: Arguments
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: Versions | None
    given: Arguments | None
    before: Leaves
    depth: int
    start: float


class _Recorder:
    """The tap on one piece."""

    def __init__(self, piece: Piece, running: list[Piece], copies: Again) -> None:
        self.piece = piece
        self.running = running  # the pieces that are being called, the innermost last
        self.copies = copies
        self.module = piece.model
        self.method = piece.entry

    def export(self) -> None:
        """Nothing is recorded while torch.export traces."""

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Entered:
        copied = clone((args, kwargs), self.copies)
        tensors = _tensors((*args, *kwargs.values()))
        given, before = None, {}
        if tensors is None or self.method != self.piece.method_name:
            given = self._given(args, kwargs)
            before = {path: (leaf, _version(leaf)) for path, leaf in flatten(given)[0]}
        depth = len(self.running)
        if depth and self.piece not in self.running[-1].callees:
            self.running[-1].callees.append(self.piece)
        self.running.append(self.piece)
        return _Entered(copied, args, kwargs, tensors, given, before, depth, time.perf_counter())

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        try:
            return self.piece.normalized(args, kwargs)
        except UsageError:
            if self.method == self.piece.method_name:
                raise
            self.piece.signature = ANY  # hooks make of them what forward takes
            return self.piece.normalized(args, kwargs)

    def leave(self, entered: _Entered, outputs: Any) -> None:
        del self.running[entered.depth :]  # with those that an exception ended
        seconds = time.perf_counter() - entered.start
        mutation = self._mutation(entered)
        copied = clone(outputs, self.copies)
        self.piece.calls.append(Record(*entered.copied, copied, seconds, mutation))

    def _mutation(self, entered: _Entered) -> Mutation | None:
        given, before, tensors = entered.given, entered.before, entered.tensors
        if tensors is not None and all(_version(one) == version for one, version in tensors):
            return None
        if given is None:
            versions = {id(one): version for one, version in tensors or ()}
            given = self._given(entered.args, entered.kwargs)
            leaves, _ = flatten(given)
            before = {path: (leaf, versions.get(id(leaf), 0)) for path, leaf in leaves}
        return _mutation(given, before, self.copies)


_FIXED = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)


def _tensors(values: Iterable[Any]) -> Versions | None:
    """The tensors among values; None where there is something in which others can be put."""
    found: Versions = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append((value, _version(value)))
        elif type(value) is tuple:
            inner = _tensors(value)
            if inner is None:
                return None
            found += inner
        elif not isinstance(value, _FIXED):
            return None
    return found


def _version(leaf: Any) -> int:
    """How often a tensor was written to; tensors of inference mode do not count."""
    return version_of(leaf) if isinstance(leaf, torch.Tensor) and not leaf.is_inference() else 0


def _mutation(given: Arguments, before: Leaves, copies: Again) -> Mutation | None:
    leaves, structure = flatten(given)
    found: list[tuple[Path | None, Any]] = []
    for path, leaf in leaves:
        old, version = before.get(path, (None, 0))
        if path in before and (leaf is old or not isinstance(leaf, torch.Tensor)):
            written = isinstance(leaf, torch.Tensor) and _version(leaf) != version
            changed = written or not (leaf is old or leaf == old)
            found.append((path if leaf is old or not changed else None,
                          clone(leaf, copies) if changed else None))  # fmt: skip
        else:
            found.append((None, clone(leaf, copies)))
    same = all(path is not None and value is None for path, value in found)
    return None if same and len(found) == len(before) else Mutation(structure, tuple(found))
