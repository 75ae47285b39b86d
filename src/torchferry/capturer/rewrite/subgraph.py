"""Functions of the user's as graphs within the graph that a trace is making.

torch's operators of control flow trace a function alone: what it reads of outside would be
missing there. So it is run once unseen, which shows what that is and what comes out, and then
given it as arguments. No code is read, so the function may do whatever Python does.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchferry.capturer.rewrite.walk import Growing
from torchferry.seams.pytorch import pytree, storage_number
from torchferry.seams.subgraphs import export_modes, is_tracing, without_tracing
from torchferry.values.attributes import hold_containers, put_back

__all__ = [
    "APART_FORMAT", "COPY_FORMAT", "Body", "copy_apart", "copy_tensors", "is_graph",
    "look_ahead", "note_read", "separate",
]  # fmt: skip

COPY_FORMAT = torch.preserve_format
"""Said of the copies that are made here, so that a program shows which they are."""

APART_FORMAT = torch.contiguous_format
"""The same of a copy of a tensor that has two names, of which a loop makes two tensors."""


def copy_tensors(value: Any) -> Any:
    """Nested values with a copy of each tensor: a graph may not change or return its arguments."""
    return pytree.tree_map_only(
        torch.Tensor, lambda one: one.clone(memory_format=COPY_FORMAT), value
    )


def copy_apart(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors as a step gives them: each its own, contiguous."""
    return [
        one.clone(memory_format=APART_FORMAT)
        if any(one is other for other in tensors[:n])
        else one.contiguous()
        for n, one in enumerate(tensors)
    ]


def separate(values: Sequence[Any], carried: Sequence[torch.Tensor] = ()) -> tuple[Any, ...]:
    """Operands, with a copy of each tensor that shares its memory with one before it.

    Args:
        values: tensors and sizes of outside.
        carried: the tensors that a loop carries, which come before them.
    """
    known = {storage_number(one.untyped_storage()) for one in carried}
    found = []
    for one in values:
        if isinstance(one, torch.Tensor):
            memory = storage_number(one.untyped_storage())
            found.append(one.clone(memory_format=APART_FORMAT) if memory in known else one)
            known.add(memory)
        else:
            found.append(one)
    return tuple(found)


@dataclass
class Body:
    """A function for a graph, and what it needs.

    Attributes:
        function: takes tensors and gives nested values.
        samples: tensors as those that it is given, without data.
        result: what it gave when it ran unseen.
        outer: the tensors of outside that it reads, in order; then sizes.
        floats: numbers of outside as tensors, which are among ``outer``, by their text.
        is_known: whether a size is one of outside.
    """

    function: Callable[..., Any]
    samples: list[torch.Tensor]
    result: Any = None
    outer: list[Any] = field(default_factory=list)
    floats: dict[str, torch.Tensor] = field(default_factory=dict)
    is_known: Callable[[Any], bool] = bool

    def knows(self, shape: Sequence[Any]) -> bool:
        """Whether a shape is the same each time that the function runs."""
        return all(isinstance(size, int) or self.is_known(size) for size in shape)

    def graph(
        self, pick: Callable[[Any], Sequence[Any]], outer: Sequence[Any] | None = None
    ) -> Callable[..., Any]:
        """The function as torch's operators trace it: arguments, then what it reads of outside.

        Args:
            pick: what it gives → the tensors to return.
            outer: what it will be given of outside, if that is more than it reads.
        """
        modes, count = export_modes(), len(self.samples)
        outer = self.outer if outer is None else outer

        def traced(*values: Any) -> tuple[torch.Tensor, ...]:
            inner = {id(one): value for one, value in zip(outer, values[count:], strict=True)
                     if isinstance(one, torch.Tensor)}  # fmt: skip
            with ExitStack() as stack, _no_attributes(), _own_numbers():
                for mode in [*modes, _Exchange(inner, self.floats)]:
                    stack.enter_context(mode)
                return tuple(copy_tensors(one) for one in pick(self.function(*values[:count])))

        return traced

    def single(self, outer: Sequence[Any]) -> Callable[..., Any]:
        """The same for a function that gives one value."""
        traced = self.graph(lambda result: [result], outer)
        return lambda *values: traced(*values)[0]


_LOOKING: list[Any] = []  # the functions that run unseen now
_READ: list[list[torch.SymInt]] = [[]]  # integers read out of tensors, of each graph around


def note_read(number: Any) -> None:
    """Note an integer that code has read out of a tensor, and may ask for in graphs within."""
    if not isinstance(number, int):  # it is one if no trace is under way
        _READ[-1].append(number)


@contextmanager
def _own_numbers() -> Iterator[None]:
    _READ.append([*_READ[-1]])
    try:
        yield
    finally:
        _READ.pop()


def is_graph() -> bool:
    """Whether code runs for a graph: a non-strict trace is under way."""
    return bool(_LOOKING) or is_tracing()


def look_ahead(function: Callable[..., Any], samples: Sequence[torch.Tensor]) -> Body:
    """Run a function unseen by the trace, and note what it reads of outside.

    Args:
        function: takes tensors; it may fail.
        samples: what it is given; it sees copies.
    """
    held = hold_containers(_reached(function))
    with without_tracing(samples) as is_known:
        copies = [_forget(one.clone()) for one in samples]
        _LOOKING.append(function)
        try:
            with _Watch(copies) as watch, _no_attributes(), _own_numbers():
                result = function(*copies)
        finally:
            _LOOKING.pop()
            changed = put_back(held)
        if changed:
            raise TypeError(
                "a list, dictionary or set of outside is changed in it, which no graph can do"
            )
        watch.note(result)  # what goes through unread
    sizes = {str(one): one for value in [*watch.outer, *samples] for one in value.shape
             if isinstance(one, torch.SymInt)}  # fmt: skip
    sizes |= {str(one): one for one in [*watch.sizes, *_READ[-1]] if is_known(one)}
    floats = {str(one): torch.full((), one, dtype=torch.float64)
              for one in watch.floats if is_known(one)}  # fmt: skip
    outer = [*watch.outer, *floats.values(), *sizes.values()]
    return Body(function, copies, result, outer, floats, is_known)


def _reached(function: Any) -> Iterator[Any]:
    """What a function can reach by its closure, and by those of the functions in it."""
    left, known = [function], set[int]()
    while left:
        one = left.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, functools.partial):
            left += [one.func, *one.args]
        elif isinstance(one, types.MethodType):
            left += [one.__func__, one.__self__]
        elif isinstance(one, types.FunctionType):
            left += [cell.cell_contents for cell in one.__closure__ or () if not _is_empty(cell)]
        elif isinstance(one, Growing):
            yield one.entries
        elif hasattr(one, "step"):  # of a loop
            left.append(one.step)
        else:
            yield one


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def _forget(tensor: Any) -> Any:
    """A tensor whose value torch does not know: the next step has another."""
    if getattr(tensor, "constant", None) is not None:
        tensor.constant = None
    return tensor


class _Watch(TorchFunctionMode):
    """Notes which tensors and sizes come from outside."""

    def __init__(self, own: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.own = {id(one): one for one in own}  # kept, so that no other has its id
        self.outer: list[torch.Tensor] = []
        self.sizes: list[torch.SymInt] = []
        self.floats: list[torch.SymFloat] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.note((args, kwargs))
        result = function(*args, **(kwargs or {}))
        self.own |= {id(leaf): leaf for leaf in pytree.tree_leaves(result)
                     if isinstance(leaf, torch.Tensor)}  # fmt: skip
        return result

    def note(self, values: Any) -> None:
        """Note those of some values that come from outside."""
        for leaf in _leaves(values):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self.own:
                self.own[id(leaf)] = leaf
                self.outer.append(leaf)
            elif isinstance(leaf, torch.SymInt):
                self.sizes.append(leaf)
            elif isinstance(leaf, torch.SymFloat):
                self.floats.append(leaf)


def _leaves(values: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(values):
        yield from (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)


class _Exchange(TorchFunctionMode):
    """Gives the graph's own tensors in place of those of outside."""

    def __init__(self, inner: dict[int, Any], floats: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.own, self.floats = inner, floats

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = pytree.tree_map(self._exchanged, (args, kwargs or {}))
        return function(*args, **kwargs)

    def _exchanged(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.own.get(id(value), value)
        if isinstance(value, torch.SymFloat) and str(value) in self.floats:
            return self.own[id(self.floats[str(value)])].item()
        return value


@contextmanager
def _no_attributes() -> Iterator[None]:
    """Let a module's attribute that is set be an error: it would be set once, not in each step."""
    before = torch.nn.Module.__setattr__

    def refuse(module: torch.nn.Module, name: str, value: Any) -> None:
        if isinstance(module, torch.fx.GraphModule) or type(module) is torch.nn.Module:  # torch's
            return before(module, name, value)
        raise TypeError(f"the attribute {type(module).__name__}.{name} is set in it")

    type.__setattr__(torch.nn.Module, "__setattr__", refuse)
    try:
        yield
    finally:
        type.__setattr__(torch.nn.Module, "__setattr__", before)
