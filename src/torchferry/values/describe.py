"""One line of text for any value: ``dict(x:T1s2x3,y:(int,None))``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from torchferry.values.dtype import element_type, tensor_of
from torchferry.values.kinds import Kind, attempt, find_kind

__all__ = ["string_type"]

_TENSOR = torch.Tensor


def string_type(
    obj: Any,
    with_shape: bool = False,
    with_min_max: bool = False,
    with_device: bool = False,
    limit: int = 20,
) -> str:
    """Describe a value in one line; never raises because of the value.

    Args:
        obj: anything: tensors, arrays, numbers, containers, caches, ONNX values.
        with_shape: ``T1s2x3`` rather than ``T1r2``.
        with_min_max: least, largest and mean of the elements (of their absolute values if
            complex), and the values of numbers. Only then is data read.
        with_device: ``C`` (cpu), ``G0`` (cuda:0), ``M`` (meta) in front of a tensor.
        limit: a list, tuple, set or dictionary of more shows its first items; a list or tuple
            only one if they print alike.

    Returns:
        the text; the number after ``T`` (tensor), ``A`` (numpy array), ``F`` (fake tensor),
        ``OV`` (OrtValue), ``OT`` (ValueInfoProto), ``TP`` (TensorProto) is ONNX's element type.

    >>> string_type((torch.zeros(2, 3), None, [1, 2.5]))
    '(T1r2,None,#2[int,float])'
    >>> string_type({"x": torch.arange(6.0).reshape(2, 3)}, with_shape=True, with_min_max=True)
    'dict(x:T1s2x3[0.0,5.0:A2.5])'
    """
    return _Printer(with_shape, with_min_max, with_device, max(limit, 0)).text(obj)


class _Printer:
    """The options of a call, and the containers it is inside of."""

    def __init__(self, shape: bool, min_max: bool, device: bool, limit: int) -> None:
        self.shape = shape
        self.min_max = min_max
        self.device = device
        self.limit = limit
        self.inside: set[int] = set()

    def text(self, obj: Any) -> str:
        cls = type(obj)
        if cls is _TENSOR:
            try:
                return self.tensor(obj, "T")
            except RuntimeError:  # a nested one has no shape
                return "Tensor(...)"
        printer = _PRINTERS.get(cls)
        if printer is not None:
            return printer(self, obj)
        kind = find_kind(cls)
        try:
            if kind is not None and cls in _BUILTIN:
                return self.container(obj, kind)
            # Any other container, protobuf or tensor may not do what its class promises.
            action = self.other if kind is None else self.container
            found, _ = attempt(action, obj, kind)
        except RecursionError:
            found = ""
        return found or f"{cls.__name__}(...)"

    def container(self, obj: Any, kind: Kind) -> str:
        if id(obj) in self.inside:  # it contains itself
            return "..."
        self.inside.add(id(obj))
        try:
            if kind.describe is not None:
                return kind.describe(obj, self.text)
            if isinstance(obj, tuple):
                end = ",)" if len(obj) == 1 else ")"
                return f"({self.items(obj)}{end}"
            if isinstance(obj, list):
                return f"#{len(obj)}[{self.items(obj)}]"
            return self.keyed(obj, kind)
        finally:
            self.inside.discard(id(obj))

    def items(self, obj: Sequence[Any]) -> str:
        if len(obj) <= self.limit:
            return ",".join(map(self.text, obj))
        shown = [self.text(item) for item in obj[: self.limit]]
        if len(set(shown)) == 1 and len(set(map(type, obj))) == 1:
            del shown[1:]
        return ",".join([*shown, "..."])

    def keyed(self, obj: Any, kind: Kind) -> str:
        cls = type(obj)
        children = obj if cls is dict else kind.flatten(obj)[0]
        if cls is not dict and dataclasses.is_dataclass(obj):
            children = {key: child for key, child in children.items() if child is not None}
        shown = children.items()
        if len(children) > self.limit:
            shown = list(islice(shown, self.limit))
        pairs = [f"{self.key(key)}:{self.text(child)}" for key, child in shown]
        inner = ",".join(pairs if len(pairs) == len(children) else [*pairs, "..."])
        if cls is not dict:
            return f"{cls.__name__}({inner})"
        named = bool(children) and all(isinstance(key, str) for key in children)
        return f"dict({inner})" if named else f"{{{inner}}}"

    def key(self, key: Any) -> str:
        if type(key) is str:
            return key
        parts = key if isinstance(key, tuple) else (key,)
        plain = all(part is None or isinstance(part, str | int | float) for part in parts)
        text, _ = attempt(str, key) if plain else (None, None)  # of no more than 4300 digits
        return text or self.text(key)

    def tensor(self, obj: torch.Tensor, letter: str) -> str:
        # Most of all values are tensors: what is called here is what a description costs.
        sizes = f"s{'x'.join(map(repr, obj.shape))}" if self.shape else f"r{obj.ndim}"
        text = f"{letter}{element_type(obj.dtype)}{sizes}"
        if self.device:
            text = _device(obj.device.type, obj.device.index) + text
        if self.min_max and letter == "T":
            text += _statistics_if_any(obj)
        return text

    def sizes(self, shape: Iterable[Any]) -> str:
        sizes = list(map(str, shape))
        return "s" + "x".join(sizes) if self.shape else f"r{len(sizes)}"

    def array(self, obj: Any) -> str:
        text = f"A{element_type(obj.dtype)}{self.sizes(obj.shape)}"
        if self.min_max and obj.dtype.kind in "biufcV":
            text += _statistics(tensor_of(obj))
        return text

    def number(self, obj: Any) -> str:
        text, error = attempt(str, obj) if self.min_max else ("", None)
        return f"{type(obj).__name__}={text}" if text and not error else type(obj).__name__

    def set(self, obj: Any) -> str:
        # Sorted, as the order of a set says nothing.
        inner = sorted(map(self.text, islice(obj, self.limit)))
        inner += ["..."] if len(obj) > self.limit else []
        return f"{{{','.join(inner)}}}" if obj else f"{type(obj).__name__}()"

    def other(self, obj: Any, _: None) -> str:
        name, module = type(obj).__name__, type(obj).__module__
        if isinstance(obj, torch.Tensor):
            return self.tensor(obj, "F" if name == "FakeTensor" else "T")
        if isinstance(obj, np.ndarray | np.generic):
            return self.array(obj)
        if isinstance(obj, type):
            return f"type({obj.__name__})"
        if isinstance(obj, np.dtype):
            return f"dtype({obj})"
        if module == "torch.export.dynamic_shapes":
            return f"Dim({obj.__name__})"
        if module.startswith("onnx"):
            return self.of_onnx(obj, name)
        return f"{name}(...)"

    def of_onnx(self, obj: Any, name: str) -> str:
        if name == "OrtValue" and obj.is_tensor():
            text = f"OV{obj.element_type()}{self.sizes(obj.shape())}"
            where = obj.device_name().lower()
            return _device(where, None if where == "cpu" else 0) + text if self.device else text
        if name == "TensorProto":
            return f"TP{obj.data_type}{self.sizes(obj.dims)}"
        if name == "ValueInfoProto" and obj.type.HasField("tensor_type"):
            kind = obj.type.tensor_type
            sizes = "r?"
            if kind.HasField("shape"):
                dims = kind.shape.dim
                sizes = self.sizes(
                    d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in dims
                )
            return f"OT{kind.elem_type}{sizes}"
        return f"{name}(...)"


def _device(kind: str, index: int | None) -> str:
    letter = {"cpu": "C", "cuda": "G", "meta": "M"}.get(kind, kind[:1].upper())
    return f"{letter}{index or 0}" if letter == "G" else letter


def _statistics_if_any(tensor: torch.Tensor) -> str:
    if tensor.is_meta or tensor.layout is not torch.strided:
        return ""
    try:
        return _statistics(tensor.detach())
    except (NotImplementedError, RuntimeError, TypeError):  # a subclass or dtype without them
        return ""


def _statistics(tensor: torch.Tensor) -> str:
    if tensor.numel() == 0:
        return "[empty]"
    if tensor.ndim == 0:
        return f"={tensor.item()}"
    if tensor.is_complex():
        tensor = tensor.abs()
    if tensor.dtype is torch.uint64:  # PyTorch has no min of it, and int64 no room for it
        array = tensor.cpu().numpy()
        return f"[{array.min()},{array.max()}:A{array.mean(dtype=np.float64)}]"
    if tensor.dtype not in (torch.bool, torch.float32, torch.float64, torch.int64, torch.int32):
        small = tensor.is_floating_point()
        tensor = tensor.to(torch.float32 if small else torch.int64)
    nans = 0
    if tensor.is_floating_point():
        missing = tensor.isnan()
        nans = int(missing.sum())
        tensor = tensor[~missing] if nans else tensor
    count = f"N{nans}nans" if nans else ""
    if tensor.numel() == 0:
        return f"[{count}]"
    mean = tensor.mean(dtype=torch.float64).item()
    return f"[{tensor.min().item()},{tensor.max().item()}:A{mean}{count}]"


_BUILTIN = frozenset((tuple, list, dict))
_PRINTERS: dict[type[Any], Callable[[_Printer, Any], str]] = {
    type(None): lambda _, __: "None",
    bool: _Printer.number,
    int: _Printer.number,
    float: _Printer.number,
    str: lambda _, __: "str",
    complex: lambda _, __: "complex",
    slice: lambda _, __: "slice",
    type: lambda _, obj: f"type({obj.__name__})",
    type(torch.export.Dim.AUTO): lambda _, obj: str(obj.type.name),
    torch.nn.Parameter: lambda printer, obj: printer.tensor(obj, "T"),
    torch.dtype: lambda _, obj: f"dtype({obj})",
    set: _Printer.set,
    frozenset: _Printer.set,
}
