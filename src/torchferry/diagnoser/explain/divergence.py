"""At which line a program begins to compute something else than the module it was made of.

Both are run on one call. Of every ATen operator they end in, the shape and a few sums of what it
gives are kept; the first operator that both run and that gives something else says the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import torch
from torch.fx import Interpreter, Node

from torchferry.seams.pytorch import OpOverload, TorchDispatchMode, pytree, schema_of
from torchferry.values.source_line import line_here, user_line

__all__ = ["line_of_change", "line_of_difference"]

_TOLERANCE = 1e-4  # of the sum of the absolute values
# Moves no value, and differs between a module and its program.
_LEFT_OUT = {"aten::detach", "aten::alias", "aten::clone", "aten::copy_", "aten::lift_fresh"}

Sums = tuple[float, ...]


@dataclass(frozen=True)
class _Event:
    """One operator that ran: its name, shape and sums of each result, and the line."""

    name: str
    results: tuple[tuple[tuple[int, ...], Sums], ...]
    line: str | None


class _Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]  # modes have no annotations
    """Hears every ATen operator.

    Attributes:
        events: in the order in which they ran.
        line: of the operators to come.
        looking: the line is that of the code which is running.
    """

    def __init__(self, *, looking: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.events: list[_Event] = []
        self.line: str | None = None
        self.looking = looking

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and keep what it gave."""
        made = func(*args, **(kwargs or {}))
        name = schema_of(func).name
        if name not in _LEFT_OUT:
            tensors = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
            if tensors:
                results = tuple((tuple(one.shape), _sums(one)) for one in tensors)
                line = line_here() if self.looking else self.line
                self.events.append(_Event(name, results, line))
        return made


class _Run(Interpreter):
    """Runs a program and tells a listener the line of each node."""

    def __init__(self, program: torch.fx.GraphModule, listener: _Listener) -> None:
        super().__init__(program)
        self.listener = listener

    def run_node(self, n: Node) -> Any:
        """Run one node; only operators of ATen are heard, not their calls of other graphs."""
        self.listener.line = user_line(n.stack_trace)
        if not isinstance(n.target, OpOverload):
            return super().run_node(n)
        with self.listener:
            return super().run_node(n)


def line_of_difference(
    run: Callable[[], Any],
    program: torch.export.ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str | None:
    """The user's ``file:line`` whose operator gives something else in the program.

    Args:
        run: calls the module on those arguments.
        program: what torch.export made of it.
        args: as the program takes them; what it writes into, it writes into these.
        kwargs: as above.

    Returns:
        None when no operator that both run differs, or torch knows no line of it.

    >>> class Scaled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * (2 if torch.compiler.is_exporting() else 3)
    >>> x = torch.ones(2)
    >>> program = torch.export.export(Scaled(), (x,))
    >>> line_of_difference(lambda: Scaled()(x), program, (x,), {}) is not None
    True
    """
    spec = program.call_spec.in_spec
    named = {name: kwargs[name] for name in spec.child(1).context}
    leaves = pytree.tree_leaves((args, named))
    eager, made = _Listener(), _Listener()
    with torch.no_grad():
        with eager:
            run()
        module = program.module(check_guards=False)
        _Run(module, made).run(*leaves)
    return next((m.line for e, m in _aligned(eager.events, made.events) if not _same(e, m)), None)


def line_of_change(run: Callable[[], Any]) -> str | None:
    """The user's ``file:line`` whose operator gives something else when all is run again.

    Args:
        run: calls a module on the same arguments each time.

    Returns:
        None when the same operators give the same, or the line is not the user's.

    >>> import itertools
    >>> count = itertools.count()
    >>> line_of_change(lambda: torch.ones(2) * next(count)) is not None
    True
    """
    first, second = _Listener(looking=True), _Listener(looking=True)
    with torch.no_grad():
        for listener in (first, second):
            with listener:
                run()
    pairs = _aligned(first.events, second.events)
    return next((one.line for one, other in pairs if not _same(one, other)), None)


def _aligned(eager: list[_Event], made: list[_Event]) -> Iterator[tuple[_Event, _Event]]:
    """The operators that both ran, in order."""
    names = [event.name for event in eager], [event.name for event in made]
    matcher = SequenceMatcher(None, names[0], names[1], autojunk=False)
    for one, other, size in matcher.get_matching_blocks():
        yield from zip(eager[one : one + size], made[other : other + size], strict=True)


def _sums(tensor: torch.Tensor) -> Sums:
    """What tells tensors apart: the sum, that of the absolute values, and one that is weighted."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        return ()
    flat = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    flat = flat.detach().flatten().double().nan_to_num()
    weights = torch.linspace(0, 1, len(flat), dtype=flat.dtype, device=flat.device)
    return tuple(x.sum().item() for x in (flat, flat.abs(), flat * weights))


def _same(one: _Event, other: _Event) -> bool:
    if len(one.results) != len(other.results):
        return False
    for (shape, sums), (other_shape, other_sums) in zip(one.results, other.results, strict=True):
        if shape != other_shape or len(sums) != len(other_sums):
            return False
        limit = _TOLERANCE * max(1e-6, *(sums[1:2] or (0.0,)))
        pairs = zip(sums, other_sums, strict=True)
        if not all(math.isclose(x, y, rel_tol=0, abs_tol=limit) for x, y in pairs):
            return False
    return True
