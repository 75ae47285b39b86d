"""The calls of torch that one layer makes while it is traced, in a form others are compared with.

A form says of each argument what it is: a plain value, the n-th tensor that the layer took from
outside (``given``), the n-th that one of its calls returned (``made``), or a container of forms.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from torchferry.seams.layers import CALL, GIVEN, constant_of
from torchferry.seams.pytorch import FakeTensor, pytree, version_of
from torchferry.seams.symbols import has_unbacked_symbols
from torchferry.values.source_line import is_library

__all__ = ["SYMBOLS", "Call", "Form", "Note", "can_rebuild", "parts_of", "rebuild"]

Form = tuple[Any, Any]

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)

_PLAIN = {
    bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout,
    torch.memory_format, *SYMBOLS,
}  # fmt: skip
_ITERATORS: tuple[type[Any], ...] = (type(iter(())), type(iter([])))
_WORDS = (
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_cpu", "is_meta",
    "is_mps", "is_sparse", "is_xla", "is_quantized", "is_nested", "is_mkldnn", "itemsize",
    "nbytes",
)  # fmt: skip
# What these say of a tensor follows from how it was made, whatever its values are.
_DESCRIPTIONS = frozenset([
    *(getattr(torch.Tensor, name).__get__ for name in _WORDS if hasattr(torch.Tensor, name)),
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.ndimension, torch.Tensor.stride,
    torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.element_size, torch.Tensor.__len__,
    torch.Tensor.is_floating_point, torch.Tensor.is_complex, torch.Tensor.is_contiguous,
    torch.Tensor.get_device, torch.Tensor.type, torch.is_floating_point, torch.is_complex,
    torch.numel,
])  # fmt: skip
# These change what a tensor is: a note has only what it is in the end.
_CHANGES = {
    "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "resize_",
    "resize_as_", "set_", "as_strided_", "requires_grad_", "rename_", "detach_", "data",
    "__set__", "__delete__", "swap_tensors",
}  # fmt: skip


class Call(NamedTuple):
    """One call of torch.

    Attributes:
        function: what was called.
        form: of its arguments ``(args, kwargs)``.
        result: the form of what it returned.
        given: how many tensors the layer had taken from outside before.
        made: how many tensors its calls had returned before.
        marks: how many calls before it have a mark in the trace: those that only describe a tensor
            have none.
    """

    function: Callable[..., Any]
    form: Form
    result: Form
    given: int
    made: int
    marks: int


class Note:
    """The calls of torch that a layer makes, and the tensors in them.

    Args:
        path: of the layer.
        ambient: the state of torch that it began in.

    Attributes:
        calls: of torch, in order.
        given: tensors from outside, in the order they were used first.
        constants: the values of these, where the trace knows them.
        kept: what calls returned, each tensor once; ``None`` of one that is gone.
        written: numbers of those in ``given`` that it writes to.
        flaw: why no other layer may be compared with it; ``""`` if nothing stands in the way.
    """

    def __init__(self, path: str, ambient: Any) -> None:
        """Begin a note."""
        self.path = path
        self.ambient = ambient
        self.calls: list[Call] = []
        self.given: list[torch.Tensor] = []
        self.constants: list[torch.Tensor | None] = []
        self.kept: list[torch.Tensor | None] = []
        self.written: set[int] = set()
        self.flaw = ""
        self._marks = 0
        self._known: dict[int, Form] = {}
        self._versions: list[int] = []

    def begin_as(
        self, other: Note, calls: int, given: Sequence[torch.Tensor], made: dict[int, torch.Tensor]
    ) -> None:
        """Take over the first calls of another note.

        Args:
            other: the note.
            calls: how many.
            given: what this layer took from outside in them.
            made: what they returned, by number; the rest is gone.
        """
        self.calls = other.calls[:calls]
        self._marks = other.begun(calls)[2]
        for tensor in given:
            self._take(tensor)
        self.kept = [made.get(number) for number in range(other.begun(calls)[1])]
        self._known |= {id(tensor): ("made", number) for number, tensor in made.items()}

    def begun(self, calls: int) -> tuple[int, int, int]:
        """How many tensors were given and made before a call, and how many calls were marked."""
        if calls < len(self.calls):
            return self.calls[calls][3:]
        return len(self.given), len(self.kept), self._marks

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of torch, and note that."""
        if self.flaw:
            return function(*args, **kwargs)
        given, made = len(self.given), len(self.kept)
        form = self._form_of((args, kwargs))
        self._check_function(function)
        result = function(*args, **kwargs)
        iterated = isinstance(result, _ITERATORS)
        result = list(result) if iterated else result
        self._check_element(form, result)
        if iterated:
            noted: Form = (iter, [self._result_of(one) for one in result])
            result = iter(result)
        elif _has_tensors(result):
            noted = self._result_of(result)
        else:
            noted = ("value", result)
            # An attribute that is None, as x._base, may be something else of another tensor.
            is_write = result is None and getattr(function, "__name__", "") != "__get__"
            described = function in _DESCRIPTIONS or (is_write and _has_tensors((args, kwargs)))
            if not described:
                self.flaw = f"{_name_of(function)} asks for values, or changes the state of torch"
        if not self.flaw:
            self.calls.append(Call(function, form, noted, given, made, self._marks))
            if function not in _DESCRIPTIONS:
                tensors = dict(self._tensors_in(noted))
                CALL(self.path, [*tensors.values()], [*tensors])
                self._marks += 1
        return result

    def finish(self) -> None:
        """Look for what it wrote to."""
        for number, (tensor, version) in enumerate(zip(self.given, self._versions, strict=True)):
            if version_of(tensor) != version:
                self.written.add(number)
                if self.constants[number] is not None:
                    self.flaw = "it writes to a tensor whose values decide"

    def _check_function(self, function: Callable[..., Any]) -> None:
        name = _name_of(function)
        if name in _CHANGES:
            self.flaw = f"{name} changes what a tensor is"
        inner = inspect.unwrap(function)
        code = inner.__code__ if isinstance(inner, types.FunctionType) else None
        if code is not None and not is_library(code.co_filename):
            self.flaw = self.flaw or f"{name} is not a function of torch's, and may read anything"

    def _check_element(self, form: Form, result: Any) -> None:
        """Look for a number of a constant: torch may take it out, and trace only that."""
        for one in pytree.tree_leaves(result):
            sizes = one.shape if isinstance(one, torch.Tensor) else [None]
            single = all(isinstance(n, int) and n == 1 for n in sizes)  # a symbol gets no guard
            if single and constant_of(one) is not None and self._has_constants(form):
                self.flaw = "it takes a number out of a tensor whose values are known"

    def _has_constants(self, form: Form) -> bool:
        kind, value = form
        if kind == "given":
            return self.constants[value] is not None
        if kind == "made":
            tensor = self.kept[value]
            return tensor is not None and constant_of(tensor) is not None
        return kind != "value" and any(map(self._has_constants, value))

    def _form_of(self, value: Any) -> Form:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._known:
                self._take(value)
            return self._known[id(value)]
        inner = parts_of(value)
        if inner is not None:
            return type(value), [self._form_of(one) for one in inner]
        if type(value) not in _PLAIN:
            self.flaw = f"a call takes a {type(value).__name__}"
        return "value", value

    def _take(self, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, FakeTensor):
            self.flaw = "it uses a tensor that is neither an argument nor a parameter or buffer"
        else:
            GIVEN(self.path, tensor)
        self._known[id(tensor)] = ("given", len(self.given))
        self.given.append(tensor)
        self.constants.append(constant_of(tensor))
        self._versions.append(version_of(tensor))

    def _tensors_in(self, form: Form) -> Iterator[tuple[int, torch.Tensor]]:
        """Results of a call by number; one that was given has a negative number."""
        kind, value = form
        if kind in ("made", "given"):
            tensor = self.kept[value] if kind == "made" else self.given[value]
            if tensor is not None:
                yield value if kind == "made" else -1 - value, tensor
        elif kind != "value":
            for one in value:
                yield from self._tensors_in(one)

    def _result_of(self, value: Any) -> Form:
        if isinstance(value, torch.Tensor):
            if id(value) in self._known:
                return self._known[id(value)]
            if not isinstance(value, FakeTensor) or value.is_conj() or value.is_neg():
                self.flaw = "a call returns a tensor of a special kind"
            elif has_unbacked_symbols(value):
                self.flaw = "a size depends on values"
            self._known[id(value)] = ("made", len(self.kept))
            self.kept.append(value)
            return self._known[id(value)]
        if isinstance(value, (tuple, list)):
            return type(value), [self._result_of(one) for one in value]
        if type(value) not in _PLAIN or (
            isinstance(value, SYMBOLS) and has_unbacked_symbols(value)
        ):
            self.flaw = f"a call returns a {type(value).__name__} beside tensors"
        return "value", value


def parts_of(value: Any) -> list[Any] | None:
    """The parts of a container, keys of a dict included; ``None`` if a value has none."""
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return list(value) if isinstance(value, (tuple, list)) else None


def can_rebuild(value: Any) -> bool:
    """Whether `rebuild` makes all that a value is of its parts."""
    known = type(value) in (tuple, list, slice, torch.Size) or isinstance(value, dict)
    named = hasattr(value, "_fields") or type(value).__module__ == "torch.return_types"
    return known or (named and not getattr(value, "__dict__", None))


def rebuild(kind: Any, inner: Sequence[Any]) -> Any:
    """A value of what it is made of: the inverse of `parts_of`, and of a result's form."""
    if kind is slice:
        return slice(*inner)
    if isinstance(kind, type) and issubclass(kind, dict):
        return kind(zip(inner[::2], inner[1::2], strict=True))
    return kind(*inner) if hasattr(kind, "_fields") else kind(inner)


def _has_tensors(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    inner = parts_of(value)
    return inner is not None and any(map(_has_tensors, inner))


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", function))
    owner = getattr(function, "__self__", None)
    return str(getattr(owner, "__name__", name)) if name == "__get__" else name
