"""A loop over a size as torch's scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.capturer.rewrite.subgraph import (
    Body,
    copy_apart,
    copy_tensors,
    look_ahead,
    note_read,
    separate,
)
from torchferry.capturer.rewrite.walk import Deeper, Growing, Rows, Walk, at_least, require
from torchferry.seams.pytorch import pytree
from torchferry.seams.subgraphs import limit_size, steps_operator
from torchferry.seams.symbols import is_known_true

__all__ = ["UNSET", "State", "run_steps"]

_UNLIKE = "what a name holds has another shape or type after each step"
_FAILED = (AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError,
           ValueError)  # fmt: skip
_AHEAD = 2  # steps that may be other than the rest: the first often sets what is None


class _Unset:
    """Stands for the value of a name that is not set."""


UNSET = _Unset()

Step = Callable[..., tuple[Any, ...]]


@dataclass
class State:
    """The values of names, taken apart into tensors and the rest.

    Attributes:
        values: nested.
    """

    values: Any

    def __post_init__(self) -> None:
        """Take it apart."""
        self.leaves, self.spec = pytree.tree_flatten(self.values)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Its tensors."""
        return [one for one in self.leaves if isinstance(one, torch.Tensor)]

    def filled(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The same with other tensors."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(one, torch.Tensor) else one for one in self.leaves]
        return pytree.tree_unflatten(leaves, self.spec)

    def before(self, later: State) -> State:
        """This state with numbers as tensors where a step leaves another number.

        Raises:
            TypeError: what a step leaves has other shapes or types.
        """
        if self.spec != later.spec:
            raise TypeError(_UNLIKE)
        pairs = zip(self.leaves, later.leaves, strict=True)
        leaves = [_joined(one, other) for one, other in pairs]
        return State(pytree.tree_unflatten(leaves, self.spec))

    def either(self, other: State) -> State:
        """What two branches give, with tensors where they differ.

        Raises:
            TypeError: they give unlike values.
        """
        if self.spec != other.spec:
            raise TypeError("a tensor decides, and the branches give unlike values")
        leaves = [_merged(*pair) for pair in zip(self.leaves, other.leaves, strict=True)]
        return State(pytree.tree_unflatten(leaves, self.spec))

    def following(self, later: State) -> list[torch.Tensor]:
        """What a step leaves where this state has tensors."""
        return [
            other if isinstance(other, torch.Tensor) else as_scalar(other, one)
            for one, other in zip(self.leaves, later.leaves, strict=True)
            if isinstance(one, torch.Tensor)
        ]


def _joined(one: Any, other: Any) -> Any:
    tensors = isinstance(one, torch.Tensor), isinstance(other, torch.Tensor)
    if all(tensors):
        alike = are_alike(one, other)
    elif any(tensors):
        number, tensor = (other, one) if tensors[0] else (one, other)
        alike = is_number(number) and _is_scalar(tensor, number)
        one = one if tensors[0] or not alike else as_scalar(one, other)
    else:
        alike = _is_same(one, other) or (is_number(one) and is_number(other))
        one = one if _is_same(one, other) or not alike else as_scalar(one, _dtype_of(other))
    if not alike:
        raise TypeError(_UNLIKE)
    return one


def _merged(one: Any, other: Any) -> Any:
    if _is_same(one, other):
        return one
    for value, twin in ((one, other), (other, one)):
        if is_number(value) and _is_scalar(twin, value):
            return twin
        if not isinstance(value, torch.Tensor) and not (is_number(value) and is_number(twin)):
            raise TypeError(
                f"a tensor decides what a name is that holds a {type(value).__name__}: "
                "only tensors can come out of torch.cond and loops"
            )
    if is_number(one):
        dtypes = {_dtype_of(one), _dtype_of(other)}
        dtype = torch.promote_types(*dtypes) if len(dtypes) > 1 else dtypes.pop()
        return torch.empty((), dtype=dtype)
    if one.dtype != other.dtype or one.ndim != other.ndim:
        raise TypeError(
            f"a tensor decides between {one.dtype} of rank {one.ndim} and {other.dtype} of rank "
            f"{other.ndim}"
        )
    return one


def are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one dtype, and one shape as far as torch knows."""
    return (
        one.dtype == other.dtype and one.ndim == other.ndim
        and all(is_known_true(a == b) for a, b in zip(one.shape, other.shape, strict=True))
    )  # fmt: skip


def is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return False
    symbols = torch.SymInt | torch.SymFloat | torch.SymBool
    if isinstance(one, symbols) or isinstance(other, symbols):
        return str(one) == str(other)  # to ask torch would decide it
    return one is other or (type(one) is type(other) and bool(one == other))


def _is_scalar(value: Any, number: Any) -> bool:
    """Whether a tensor may stand where a number stands: it has rank 0, and is of its kind."""
    kind = isinstance(number, float | torch.SymFloat)
    return isinstance(value, torch.Tensor) and not value.ndim and value.is_floating_point() == kind


def as_scalar(number: Any, like: Any = None) -> torch.Tensor:
    """A number as a tensor of rank 0, which behaves as a number does.

    Args:
        number: it.
        like: a tensor, or a dtype, that it stands beside.
    """
    if isinstance(like, torch.Tensor):
        return torch.full((), number, dtype=like.dtype, device=like.device)
    return torch.full((), number, dtype=like or _dtype_of(number))


def _dtype_of(number: Any) -> torch.dtype:
    if isinstance(number, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(number, int | torch.SymInt) else torch.get_default_dtype()


@dataclass
class _Loop:
    """A loop while it becomes a scan.

    Attributes:
        walk: what it runs over.
        step: takes an item, the lists and the names; gives the names.
        names: what they hold before the next step.
        lists: the entries of each list before the next step.
        ahead: how many steps have run.
    """

    walk: Walk
    step: Step
    names: tuple[Any, ...]
    lists: list[list[Any]]
    ahead: int = 0

    def __post_init__(self) -> None:
        """Prepare."""
        self._forget()

    def _forget(self) -> None:
        self.depth = [0] * len(self.lists)  # how many of the last entries a step reads
        self.added = [1] * len(self.lists)  # how many it adds

    def prepare(self) -> tuple[Body, State]:
        """The step as a graph's, and the state it begins with. Steps may run ahead of it."""
        while True:
            try:
                return self._look()
            except Deeper as deeper:
                self.depth[deeper.number] = deeper.place
            except _FAILED:  # the first steps of the user's code may differ from the rest
                if self.ahead == _AHEAD:
                    raise
                self._run_ahead()

    def _look(self) -> tuple[Body, State]:
        if isinstance(self.walk.start, torch.SymInt):  # each number is this and steps from it
            note_read(self.walk.start)
        state = State((self.names, self._recent()))
        while True:
            body = look_ahead(self._function(state), [*state.tensors, torch.arange(1)[0]])
            added = [len(one.entries) for one in body.result[1]]
            before = state.before(self._later(body.result))
            if len(before.tensors) == len(state.tensors) and added == self.added:
                return body, state
            state, self.added = before, added

    def _function(self, state: State) -> Callable[..., Any]:
        def function(*tensors: torch.Tensor) -> Any:
            number: Any = tensors[-1].item()
            note_read(number)
            if not self.spare or self.ahead:
                limit_size(number)
            names, recent = copy_tensors(state.filled(tensors[:-1]))
            lists = [
                Growing(n, before, last, len(before) + number * added)
                for n, (before, last, added)
                in enumerate(zip(self.lists, recent, self.added, strict=True))
            ]  # fmt: skip
            return self.step(self.walk.item(number + self.ahead), *lists, *names), lists

        return function

    def _recent(self) -> list[list[Any]]:
        return [one[len(one) - depth :] for one, depth in zip(self.lists, self.depth, strict=True)]

    def _later(self, result: tuple[Any, list[Growing]]) -> State:
        names, lists = result
        pairs = zip(lists, self.depth, strict=True)
        return State((names, [one.last(depth) for one, depth in pairs]))

    def _run_ahead(self) -> None:
        require(self.walk.count > self.ahead)
        self.lists = [list(one) for one in self.lists]
        self.names = self.step(self.walk.item(self.ahead), *self.lists, *self.names)
        self.ahead += 1
        self._forget()

    @property
    def spare(self) -> bool:
        """Whether there may be no step, so that a Scan, which has some, needs one more."""
        return bool(self.ahead) or not self.walk.fills

    def run(self) -> tuple[tuple[Any, ...], list[Any]]:
        """What the names and the lists hold after the loop."""
        body, state = self.prepare()
        count = self.walk.count - self.ahead
        steps = at_least(count, int(self.spare))
        index = torch.arange(steps)
        if self.spare:
            index = index.clamp(max=count - 1)
        begin = copy_apart(state.tensors)
        idle = [one.clone() for one in begin] if self.spare else []  # if there is no step

        def pick(result: Any) -> list[torch.Tensor]:
            entries = [entry for one in result[1] for entry in one.entries]
            return [*state.following(self._later(result)), *map(_as_entry, entries)]

        entries = (entry for one in body.result[1] for entry in one.entries)
        if not all(body.knows(one.shape) for one in entries if isinstance(one, torch.Tensor)):
            raise TypeError("the entries of a list that a loop fills have several sizes")
        found = steps_operator()(body.graph(pick), begin, [index], separate(body.outer, begin))
        carried, kept = list(found[: len(begin)]), list(found[len(begin) :])
        if self.spare:
            some = (torch.arange(1) < count).reshape(())
            carried = [torch.where(some, *pair) for pair in zip(carried, idle, strict=True)]
            least = at_least(count, 0)
            kept = [one.narrow(0, 0, least) for one in kept]
        rows = [self._rows(one, kept) for one in body.result[1]]
        return state.filled(carried)[0], rows

    def _rows(self, growing: Growing, kept: list[torch.Tensor]) -> Any:
        """A list after the loop; it takes its entries from all that is kept."""
        before, count = self.lists[growing.number], len(growing.entries)
        if not count:
            return before
        data = kept.pop(0)
        if count > 1:
            data = torch.stack([data, *(kept.pop(0) for _ in range(1, count))], 1).flatten(0, 1)
        if growing.front:
            return Rows(data.flip(0)).with_rows((), before)
        return Rows(data).with_rows(before, ())


def _as_entry(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    if not is_number(value):
        raise TypeError(
            f"a list that a loop over a dynamic size fills holds {type(value).__name__}"
        )
    return as_scalar(value)


def run_steps(
    walk: Walk, step: Step, names: tuple[Any, ...], lists: tuple[list[Any], ...]
) -> tuple[Any, ...]:
    """A loop over a size: one scan, after up to two steps that are traced as they are.

    Args:
        walk: what it runs over.
        step: takes an item, the lists and the names; gives the names.
        names: what they hold before it; `UNSET` where a name is not set.
        lists: those that it appends to.

    Returns:
        the lists, then what the names hold after it.

    Raises:
        TypeError: what a name holds has another shape or type after each step, or is not known.
    """
    if not all(type(one) in (list, Rows) for one in lists):
        raise TypeError("a loop within a loop appends to a list outside of both")
    fresh = [[] if isinstance(one, Rows) else one for one in lists]
    found, rows = _Loop(walk, step, names, fresh).run()
    joined = [one + row if isinstance(one, Rows) else row
              for one, row in zip(lists, rows, strict=True)]  # fmt: skip
    return (*joined, *found)
