"""What a rule may ask about values and nodes; what is not so or not known declines the rewrite.

Sizes are those of `torchferry.dims`: equal expressions are equal, and a size that nobody named is
equal to itself only.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.dims import Dim, Size, parse_size
from torchferry.graph.reference import is_unbound
from torchferry.optimizer.rule import Declined

__all__ = [
    "FLOATS",
    "array",
    "attribute",
    "axes_of",
    "byte_count",
    "constant",
    "ints",
    "is_constant",
    "is_nameless",
    "number",
    "rank",
    "same_shape",
    "same_size",
    "shape",
    "size",
    "size_of_text",
    "tensor_of",
]

FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
)
"""The types that rules for float arithmetic are right for."""

_UNKNOWN = "torchferry.unknown"
_ANY = frozenset({"", "?", "*", "-1", "None"})
"""What exporters write for a size without a name: two of them are not one size."""
_numbers = itertools.count()


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of a value that is the same in every run; its data may not be read yet."""
    if value is None or value.is_graph_input():  # an input overrides its initializer
        return None
    tensor = value.const_value
    if tensor is None:
        node = value.producer()
        if node is None or node.op_type != "Constant" or node.domain:
            return None
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return None
        tensor = value.const_value = ir.convenience.get_const_tensor(value)
    return None if tensor is None or is_unbound(tensor) else tensor


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is the same in every run."""
    return constant(value) is not None


def byte_count(tensor: ir.TensorProtocol) -> float:
    """How many bytes a tensor takes; infinitely many for strings, whose lengths are not known."""
    return math.inf if tensor.dtype == ir.DataType.STRING else tensor.nbytes


def tensor_of(value: ir.Value | None) -> ir.TensorProtocol:
    """The tensor of a constant; its data may not be read yet.

    Raises:
        Declined: the value is no constant.
    """
    tensor = constant(value)
    if tensor is None:
        raise Declined(f"{_name(value)} is not constant")
    return tensor


def array(value: ir.Value | None, *, most: int = 1 << 16) -> np.ndarray[Any, Any]:
    """The content of a constant of at most ``most`` elements.

    Raises:
        Declined: the value is no constant, or a larger one.
    """
    tensor = tensor_of(value)
    if tensor.size > most:
        raise Declined(f"{_name(value)} has {tensor.size} elements, more than {most}")
    return tensor.numpy()


def number(value: ir.Value | None) -> Any:
    """The only element of a constant, as a Python number.

    Raises:
        Declined: the value is no constant, or has not one element.
    """
    tensor = constant(value)
    if tensor is None or tensor.size != 1:
        raise Declined(f"{_name(value)} is no constant number")
    return tensor.numpy().item()


def ints(value: ir.Value | None) -> list[int]:
    """The elements of a constant of integers.

    Raises:
        Declined: the value is no constant, or not of integers.
    """
    content = array(value)
    if content.dtype.kind not in "iu":
        raise Declined(f"{_name(value)} is no vector of integers")
    return [int(item) for item in content.reshape(-1)]


def rank(value: ir.Value | None) -> int:
    """How many axes a value has.

    Raises:
        Declined: that is not known.
    """
    if value is None or value.shape is None:
        raise Declined(f"the rank of {_name(value)} is not known")
    return len(value.shape)


def shape(value: ir.Value | None) -> tuple[Size, ...]:
    """The sizes of the axes of a value.

    Raises:
        Declined: its rank is not known.
    """
    if value is None or value.shape is None:
        raise Declined(f"the rank of {_name(value)} is not known")
    return tuple(
        item if isinstance(item, int) else _size(value, axis, item.value)
        for axis, item in enumerate(value.shape)
    )


def size(value: ir.Value | None, axis: int) -> Size:
    """The size of one axis, which may be counted from the end.

    Raises:
        Declined: there is no such axis, or the rank is not known.
    """
    sizes = shape(value)
    if not -len(sizes) <= axis < len(sizes):
        raise Declined(f"{_name(value)} has no axis {axis}")
    return sizes[axis]


def same_size(x: ir.Value, i: int, y: ir.Value, j: int) -> bool:
    """Whether two axes have one size whatever the inputs are.

    Raises:
        Declined: there is no such axis, or a rank is not known.
    """
    return size(x, i) == size(y, j)


def same_shape(x: ir.Value, y: ir.Value) -> bool:
    """Whether two values have one shape whatever the inputs are.

    Raises:
        Declined: a rank is not known.
    """
    return x is y or shape(x) == shape(y)


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, or ``default``.

    Raises:
        Declined: it is an attribute of the function around.
    """
    found = node.attributes.get(name)
    if found is None:
        return default
    if found.is_ref():
        raise Declined(f"{name} is set by who calls the function")
    value = found.value
    return list(value) if isinstance(value, tuple) else value


def axes_of(axes: ir.Value | None, around: int) -> list[int]:
    """Constant axes, counted from the front and in order.

    Args:
        axes: the input of a node.
        around: the rank they are axes of.

    Raises:
        Declined: they are not constant.
    """
    return sorted(axis + around if axis < 0 else axis for axis in ints(axes))


def is_nameless(text: str) -> bool:
    """Whether a size is called what exporters call one they have no name for.

    >>> is_nameless("?"), is_nameless("batch")
    (True, False)
    """
    return text.strip() in _ANY


@lru_cache(4096)
def size_of_text(text: str) -> Size:
    """The size that a name or an expression in a model stands for."""
    try:
        return parse_size(text)
    except ValueError:
        return Dim.of(f"\0{text}")


def _size(value: ir.Value, axis: int, text: str | None) -> Size:
    if text is not None and not is_nameless(text):
        return size_of_text(text)
    if (unknown := value.meta.get(_UNKNOWN)) is None:
        unknown = value.meta[_UNKNOWN] = next(_numbers)
    return Dim.of(f"\0{unknown}.{axis}")  # no name in a model begins with NUL


def _name(value: ir.Value | None) -> str:
    return "a missing input" if value is None else str(value.name)
