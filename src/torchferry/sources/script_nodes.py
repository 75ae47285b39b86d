"""What nodes of TorchScript compute that are not operators on tensors: numbers, lists, texts.

Sizes may be symbolic: they are asked of ``Tensor.shape`` and computed with Python's operators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.seams.pytorch import schema_of

__all__ = ["FUNCTIONS", "UNPACKING", "call_operator"]

_NUMBERS = int | float | torch.SymInt | torch.SymFloat
_PUBLIC: Any = torch  # whose annotations do not know of symbolic numbers

# The numbers that TorchScript has for them.
_DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8,
    torch.quint8, torch.qint32, torch.bfloat16,
)  # fmt: skip
_FORMATS = (
    torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d,
)  # fmt: skip
_NUMBERED: dict[str, Sequence[Any]] = {
    "dtype": _DTYPES, "memory_format": _FORMATS, "layout": (torch.strided,),
}  # fmt: skip


def call_operator(
    kind: str, overload: Any, values: Sequence[Any], function: Callable[..., Any] | None
) -> Any:
    """Compute a node.

    Args:
        kind: ``aten::add``.
        overload: the operator of torch, if there is one.
        values: of its arguments, all by position, as in TorchScript.
        function: of `FUNCTIONS`. An operator of torch goes first if an argument is a tensor.
    """
    on_tensors = any(isinstance(value, torch.Tensor) for value in values)
    if function is not None and (not on_tensors or overload is None or kind in _ASKED):
        return function(*values)
    if kind == "aten::_convolution":  # traces have it; the last arguments choose a library
        return torch.ops.aten.convolution.default(*values[:9])
    given = {}
    for parameter, value in zip(schema_of(overload).arguments, values, strict=False):
        if parameter.name in _NUMBERED and type(value) is int:
            given[parameter.name] = _NUMBERED[parameter.name][value]
        elif str(parameter.type) == "Tensor" and isinstance(value, _NUMBERS):
            given[parameter.name] = _PUBLIC.scalar_tensor(value, dtype=_dtype_of(value))
        else:
            given[parameter.name] = value
    return overload(**given)


def _dtype_of(number: Any) -> torch.dtype:
    return torch.float32 if isinstance(number, float | torch.SymFloat) else torch.int64


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + b if alpha == 1 else a + alpha * b


def _subtract(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - b if alpha == 1 else a - alpha * b


def _size(x: torch.Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) else x


def _int(x: Any) -> Any:
    number = _number(x)
    return number if isinstance(number, torch.SymInt) else int(number)


def _float(x: Any) -> Any:
    number = _number(x)
    return number if isinstance(number, torch.SymFloat) else _PUBLIC.sym_float(number)


def _bool(x: Any) -> Any:
    number = _number(x)
    return number if isinstance(number, torch.SymBool) else bool(number)


def _raise(message: str, *_: Any) -> None:
    raise RuntimeError(message)


def _tensor(value: Any, dtype: int | None = None, device: Any = None, *_: Any) -> torch.Tensor:
    kind = None if dtype is None else _DTYPES[dtype]
    return torch.tensor(value, dtype=kind, device=device)


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _extend(values: list[Any], others: list[Any]) -> None:
    values.extend(others)


def _set_item(values: Any, key: Any, value: Any) -> Any:
    values[key] = value
    return values


def _slice(values: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return values[start:end:step]


def _pairs(*values: Any) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _first(value: Any, *_: Any) -> Any:
    return value


def _to(x: torch.Tensor, *options: Any) -> torch.Tensor:
    """Of the overloads that take what is known of another tensor: a device, a type or both."""
    for option in options[:2]:
        if isinstance(option, int) and not isinstance(option, bool):
            x = x.to(_DTYPES[option])
        elif isinstance(option, torch.device | str):
            x = x.to(option)
    return x


def _least(*values: Any) -> Any:
    return _PUBLIC.sym_min(*values) if len(values) == 2 else min(*values)


def _most(*values: Any) -> Any:
    return _PUBLIC.sym_max(*values) if len(values) == 2 else max(*values)


def _nothing(*_: Any) -> None:
    return None


def _range(*bounds: int) -> list[int]:
    return list(range(*bounds))


_ASKED = frozenset(
    f"aten::{name}"
    for name in ("size", "dim", "len", "Int", "Float", "Bool", "item", "IntImplicit",
                 "FloatImplicit", "ScalarImplicit", "__is__", "__isnot__", "append", "tensor",
                 "as_tensor", "numel", "_set_item", "__contains__", "list", "device")
)  # fmt: skip
"""What is asked of tensors in Python, though torch has some of these operators."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "aten::add": _add,
    "aten::sub": _subtract,
    "aten::rsub": lambda a, b, alpha=1: _subtract(b, a, alpha),
    "aten::mul": operator.mul,
    "aten::div": lambda a, b, rounding_mode=None: a // b if rounding_mode else a / b,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::pow": operator.pow,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::gt": operator.gt,
    "aten::le": operator.le,
    "aten::ge": operator.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__not__": operator.not_,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__contains__": operator.contains,
    "aten::__getitem__": operator.getitem,
    "aten::__range_length": lambda low, high, step: len(range(low, high, step)),
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::_set_item": _set_item,
    "aten::slice": _slice,
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::list": list,
    "aten::keys": list,
    "aten::values": lambda mapping: list(mapping.values()),
    "aten::items": lambda mapping: list(mapping.items()),
    "aten::len": len,
    "aten::size": _size,
    "aten::dim": lambda x: x.ndim,
    "aten::numel": lambda x: x.numel(),
    "aten::Int": _int,
    "aten::IntImplicit": _int,
    "aten::Float": _float,
    "aten::FloatImplicit": _float,
    "aten::Bool": _bool,
    "aten::ScalarImplicit": _number,
    "aten::item": _number,
    "aten::ceil": math.ceil,
    "aten::floor": math.floor,
    "aten::sqrt": lambda x: _PUBLIC.sym_sqrt(x) if isinstance(x, torch.SymInt) else math.sqrt(x),
    "aten::log": math.log,
    "aten::pop": lambda values, index=-1: values.pop(index),
    "aten::insert": lambda values, index, value: values.insert(index, value),
    "aten::device": torch.device,
    "aten::to": _to,
    "aten::tensor": _tensor,
    "aten::as_tensor": _tensor,
    "aten::_unwrap_optional": _first,
    "aten::format": lambda text, *values: text.format(*values),
    "aten::str": str,
    "aten::warn": _nothing,
    "prim::data": lambda x: x.detach(),
    "prim::device": lambda x: x.device,
    "prim::dtype": lambda x: _DTYPES.index(x.dtype),
    "prim::layout": lambda _: 0,
    "prim::is_cuda": lambda x: x.is_cuda,
    "prim::requires_grad": lambda x: x.requires_grad,
    "prim::min": _least,
    "prim::max": _most,
    "prim::abs": abs,
    "prim::rangelist": _range,
    "prim::shape": _size,
    "prim::NumToTensor": _first,  # a size stays a number, so that it stays symbolic
    "prim::ListConstruct": lambda *values: list(values),
    "prim::ListUnpack": lambda values: values,
    "prim::TupleConstruct": lambda *values: values,
    "prim::TupleUnpack": lambda values: values,
    "prim::TupleIndex": operator.getitem,
    "prim::TupleSlice": _slice,
    "prim::DictConstruct": _pairs,
    "prim::RaiseException": _raise,
    "prim::Print": _nothing,
    "prim::Uninitialized": _nothing,
    "prim::unchecked_cast": _first,
    "prim::unchecked_unwrap_optional": _first,
}
"""By kind of node; TorchScript gives all arguments by position."""

UNPACKING = frozenset({"prim::ListUnpack", "prim::TupleUnpack"})
"""Kinds whose result is a sequence of their outputs, even of a single one."""
