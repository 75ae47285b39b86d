"""What rewritten code calls: control flow of the graph where a tensor decides, else Python's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from torchferry.capturer.rewrite.loop import UNSET, State, as_scalar, is_number, run_steps
from torchferry.capturer.rewrite.reading import as_bool, as_float, as_int, item, read
from torchferry.capturer.rewrite.subgraph import (
    Body,
    copy_apart,
    copy_tensors,
    is_graph,
    look_ahead,
    note_read,
    separate,
)
from torchferry.capturer.rewrite.walk import (
    Rows,
    Walk,
    enumerated,
    require,
    reversed_,
    sections,
    unbound,
    walk,
    walk_range,
    zipped,
)
from torchferry.seams.pytorch import pytree
from torchferry.seams.subgraphs import branch_operator, limit_size, repeat_operator
from torchferry.seams.symbols import has_unbacked_symbols, is_known_true

__all__ = [
    "UNSET", "as_bool", "as_float", "as_int", "both", "check", "choose", "collect", "decide",
    "either", "entry", "enumerated", "every", "fill", "greatest", "invert", "is_walk", "item",
    "items", "least", "length", "listed", "loop", "number", "pick", "put", "read", "repeat",
    "reversed_", "sections", "some", "total", "unbound", "walk", "walk_range", "zipped",
]  # fmt: skip

_sym: Any = torch  # whose functions of symbols have no types
Names = tuple[Any, ...]
Own = Callable[[Any], Any]
Written = dict[int, Any]
"""Position of a name → what it holds, for names that are changed in place and not set anew."""


def _decides(test: Any) -> bool:
    """Whether a condition is known only when the graph runs."""
    if isinstance(test, torch.Tensor):
        return True
    test = _as_test(test)
    return (
        isinstance(test, torch.SymBool) and has_unbacked_symbols(test)
        and not is_known_true(test) and not is_known_true(_sym.sym_not(test))
    )  # fmt: skip


def _as_test(test: Any) -> Any:
    """A condition as what decides: a bool, a SymBool or a tensor."""
    if isinstance(test, torch.SymInt | torch.SymFloat):
        return test != 0
    return test.all() if isinstance(test, torch.Tensor) else test


def choose(
    test: Any,
    then: Callable[[Own], Names],
    other: Callable[[Own], Names],
    written: Written | None = None,
) -> Names:
    """What ``if test:`` leaves in the names it sets: ``torch.cond`` where ``test`` is a tensor.

    Args:
        test: what decides.
        then: gives the names; its argument is called on each tensor that it changes in place.
        other: the same for the other side.
        written: the names that are the same tensors after it, with other numbers.

    Raises:
        TypeError: a tensor decides what a name is that holds no tensor.
    """
    if not _decides(test):
        return (then if test else other)(_itself)
    result: Names = _branch(test, then, other)
    return _through(result, written)


def decide(test: Any, then: Callable[[Own], Any], other: Callable[[Own], Any]) -> Any:
    """Return ``then()`` or ``other()``, through ``torch.cond`` where a tensor decides.

    Args:
        test: what decides.
        then: gives what is returned: a tensor, or some in containers.
        other: the same for the other side.

    Raises:
        TypeError: a tensor decides, and the sides return unlike values.
    """
    if not _decides(test):
        return (then if test else other)(_itself)
    return _branch(test, then, other)


def _branch(test: Any, then: Callable[[Own], Any], other: Callable[[Own], Any]) -> Any:
    if not is_graph():  # Dynamo, which follows what they read
        if not torch.compiler.is_dynamo_compiling():
            return (then if bool(_as_test(test)) else other)(_itself)
        return torch.cond(_as_test(test), _flat_side(then), _flat_side(other), ())
    bodies = [look_ahead(partial(side, copy_tensors), []) for side in (then, other)]
    merged = State(bodies[0].result).either(State(bodies[1].result))
    outer = _joined(bodies)
    operands = tuple(outer)
    graphs = [body.graph(lambda result: merged.following(State(result)), operands)
              for body in bodies]  # fmt: skip
    return merged.filled(branch_operator()(_as_test(test), *graphs, separate(operands)))


def _flat_side(side: Callable[[Own], Any]) -> Callable[[], Any]:
    def flat() -> Any:
        return pytree.tree_map(
            lambda leaf: copy_tensors(as_scalar(leaf) if is_number(leaf) else leaf),
            side(copy_tensors),
        )

    return flat


def _joined(bodies: Iterable[Body]) -> list[Any]:
    """The tensors and sizes that several graphs read from outside, each once."""
    found: dict[Any, Any] = {}
    for body in bodies:
        for one in body.outer:
            found.setdefault(id(one) if isinstance(one, torch.Tensor) else str(one), one)
    return [*found.values()]


def repeat(
    test: Callable[..., Any],
    body: Callable[..., Names],
    names: Names,
    written: Written | None = None,
) -> Names:
    """What ``while test(*names): names = body(*names)`` leaves: a loop where a tensor decides."""
    decided = test(*names)
    while not _decides(decided):
        if not decided:
            return names
        names = body(*names)
        decided = test(*names)
    if not is_graph():
        while bool(_as_test(decided)):
            names = body(*names)
            decided = test(*names)
        return names
    return _through(_repeated(test, body, names), written)


def _repeated(test: Callable[..., Any], body: Callable[..., Names], names: Names) -> Names:
    state = State(names)

    def step(*tensors: Any) -> Names:
        return body(*copy_tensors(state.filled(tensors)))

    def goes_on(*tensors: Any) -> Any:
        return _as_test(test(*state.filled(tensors)))

    while True:
        stepping = look_ahead(step, state.tensors)
        before = state.before(State(stepping.result))
        if len(before.tensors) == len(state.tensors):
            break
        state = before
    asking = look_ahead(goes_on, state.tensors)
    outer, begin = tuple(_joined([stepping, asking])), copy_apart(state.tensors)
    found = repeat_operator()(
        asking.single(outer),
        stepping.graph(lambda result: state.following(State(result)), outer),
        tuple(begin), separate(outer, begin),
    )  # fmt: skip
    result: Names = state.filled(list(found))
    return result


def is_walk(value: Any) -> bool:
    """Whether a loop runs over as many values as a size says, in a trace that can have that."""
    return isinstance(value, Walk) and is_graph()


def loop(
    over: Walk,
    step: Callable[..., Names],
    names: Names,
    lists: tuple[list[Any], ...],
    written: Written | None = None,
) -> Names:
    """A loop over a size; see `torchferry.capturer.rewrite.loop.run_steps`."""
    found = run_steps(over, step, names, lists)
    return (*found[: len(lists)], *_through(found[len(lists) :], written))


def items(over: Any) -> Any:
    """What a loop runs over, to take items of by number."""
    return over if isinstance(over, Walk) else list(over)


def length(found: Any) -> Any:
    """How many items `items` has."""
    return found.count if isinstance(found, Walk) else len(found)


def pick(found: Any, place: Any) -> Any:
    """An item; a tensor may say which, if the items are numbers or slices."""
    if not isinstance(place, torch.Tensor):
        return found.item(place) if isinstance(found, Walk) else found[place]
    number: Any = place.item()
    note_read(number)
    limit_size(number)
    if isinstance(found, Walk):
        return found.item(number)
    steps = {other - one for one, other in itertools.pairwise(found)}
    if len(steps) > 1:
        raise TypeError("a loop that a tensor ends runs over other things than numbers")
    return found[0] + number * next(iter(steps), 1)


def collect(over: Any, entry_of: Callable[[Any], Any]) -> Any:
    """``[entry_of(item) for item in over]``."""
    over = walk(over)
    if not is_walk(over):
        return [entry_of(one) for one in over]

    def step(now: Any, entries: Any) -> Names:
        entries.append(entry_of(now))
        return ()

    return run_steps(over, step, (), ([],))[0]


def listed(values: Any) -> Any:
    """``list(values)``."""
    return values if isinstance(values, Rows) else list(values)


def total(values: Any, start: Any = 0) -> Any:
    """``sum(values, start)``."""
    return values.data.sum(0) + start if isinstance(values, Rows) else sum(values, start)


def every(values: Any) -> Any:
    """``all(values)``."""
    return _reduced(values, all, lambda data: data.bool().all())


def some(values: Any) -> Any:
    """``any(values)``."""
    return _reduced(values, any, lambda data: data.bool().any())


def greatest(values: Any) -> Any:
    """``max(values)``."""
    return _reduced(values, max, torch.max)


def least(values: Any) -> Any:
    """``min(values)``."""
    return _reduced(values, min, torch.min)


def _reduced(values: Any, plain: Callable[..., Any], joined: Callable[..., Any]) -> Any:
    """What a function of Python makes of values, or of numbers in tensors that a list holds."""
    if isinstance(values, Rows):
        if values.data.ndim > 1:
            raise TypeError("tensors of more than one number are compared")
        return joined(values.data)
    found = list(values)
    if not any(isinstance(one, torch.Tensor) or _decides(one) for one in found):
        return plain(found)
    return joined(torch.stack([_as_tensor(one).reshape(()) for one in found]))


def _as_tensor(value: Any) -> torch.Tensor:
    value = value if isinstance(value, torch.Tensor) else _as_test(value)
    if isinstance(value, torch.SymBool):
        return torch.full((), _sym.sym_ite(value, 1, 0)).bool()
    return value if isinstance(value, torch.Tensor) else as_scalar(value)


def invert(test: Any) -> Any:
    """``not test``, of a tensor a tensor."""
    if _decides(test) and not isinstance(test, torch.Tensor):
        return _sym.sym_not(_as_test(test))
    return torch.logical_not(test.all()) if isinstance(test, torch.Tensor) else not test


def both(test: Any, other: Callable[[], Any]) -> Any:
    """``test and other()``, of tensors a tensor."""
    return _all_of(torch.logical_and, test, other) if _decides(test) else test and other()


def either(test: Any, other: Callable[[], Any]) -> Any:
    """``test or other()``, of tensors a tensor."""
    return _all_of(torch.logical_or, test, other) if _decides(test) else test or other()


def _all_of(join: Callable[..., Any], test: Any, other: Callable[[], Any]) -> Any:
    # Both are computed in any case: what decides is known when the graph runs.
    return join(*(_as_tensor(one).all() for one in (test, other())))


def check(test: Any, failed: Callable[[], None]) -> None:
    """``if test: failed()``, where ``failed`` raises; of a tensor, a check when the graph runs."""
    if isinstance(test, torch.Tensor):
        holds = torch.logical_not(test.all()).item()
        require(holds)
    elif test:
        failed()


def entry(tensor: torch.Tensor, axis: int, value: Any) -> torch.Tensor:
    """The slice that ``tensor[:, t] = value`` writes, as a new tensor."""
    shape = [size for n, size in enumerate(tensor.shape) if n != axis]
    given: torch.Tensor = as_scalar(value, tensor) if is_number(value) else value.to(tensor)
    return given.expand(shape).clone()


def fill(tensor: torch.Tensor, axis: int, over: Walk, entries: Any) -> None:
    """Write the entries of all steps of a loop that counts, along an axis."""
    rows, count = entries.data, entries.length
    if over.step in (1, -1):
        rows = rows if over.step == 1 else rows.flip(0)
        start = over.start if over.step == 1 else over.start - count + 1
        tensor.movedim(axis, 0).narrow(0, start, count).copy_(rows)
    else:
        tensor.index_copy_(
            axis, torch.arange(count) * over.step + over.start, rows.movedim(0, axis)
        )


def number(value: Any, tensor: Any) -> Any:
    """A number that is written to a tensor, as one: a constant within a branch stops torch."""
    if isinstance(value, bool | int | float) and isinstance(tensor, torch.Tensor):
        return torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    return value


def put(tensor: Any, index: Any, value: Any) -> None:
    """``tensor[index] = value`` within a graph, also with several numbers that only it knows."""
    numbers = [one for one in index if isinstance(one, torch.SymInt)]
    if isinstance(tensor, torch.Tensor) and len(numbers) > 1:
        tensor[index].copy_(number(value, tensor))
    else:
        tensor[index] = number(value, tensor)


def _itself(value: Any) -> Any:
    return value


def _through(names: Names, written: Written | None) -> Names:
    """Names whose tensors of before have the new numbers, so that all their names see them."""
    found = list(names)
    for place, before in (written or {}).items():
        if isinstance(before, torch.Tensor):
            found[place] = before.copy_(found[place])
        elif isinstance(before, list) and isinstance(found[place], list):
            before[:] = found[place]
            found[place] = before
    return tuple(found)
