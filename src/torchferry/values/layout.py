"""Which tensors are no view of plain memory, or compute by rules of their own, and why."""

from __future__ import annotations

import torch

from torchferry.seams.pytorch import is_functorch_tensor

__all__ = ["why_not_ordinary", "why_not_plain", "why_not_shaped"]


def why_not_shaped(tensor: torch.Tensor) -> str | None:
    """Why a tensor has no shape and no elements that can be read; ``None`` if it has.

    Args:
        tensor: of any class; only what kind it is of is looked at.

    >>> why_not_shaped(torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged))
    'nested; give its parts, as unbind() has them'
    """
    if is_functorch_tensor(tensor):
        return "one that torch.func (vmap, grad, jvp ...) works on, without memory of its own"
    if type(tensor) is not torch.Tensor and torch.nn.parameter.is_lazy(tensor):
        return "without a shape yet"
    return "nested; give its parts, as unbind() has them" if tensor.is_nested else None


def why_not_plain(tensor: torch.Tensor) -> str | None:
    """Why a tensor's elements lie in no plain memory; ``None`` if they do.

    Args:
        tensor: see `why_not_shaped`.

    >>> why_not_plain(torch.eye(2).to_sparse())
    'of layout torch.sparse_coo; give a dense tensor'
    """
    if tensor.layout is not torch.strided and not tensor.is_nested:
        return f"of layout {tensor.layout}; give a dense tensor"
    if tensor.is_meta:
        return "on device meta, without data; give a dense tensor"
    return why_not_shaped(tensor)


def why_not_ordinary(tensor: torch.Tensor) -> str | None:
    """Why PyTorch's functions may compute something else of a tensor; ``None`` if they do not.

    Args:
        tensor: see `why_not_shaped`.

    >>> class Doubled(torch.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, function, types, args=(), kwargs=None):
    ...         return super().__torch_function__(function, types, args, kwargs or {}) * 2
    >>> why_not_ordinary(torch.ones(2).as_subclass(Doubled))
    'of class Doubled, which changes what functions of PyTorch compute'
    >>> why_not_ordinary(torch.nn.Parameter(torch.ones(2)))
    """
    cls = type(tensor)
    if (
        cls.__module__.partition(".")[0] == "torch"
    ):  # parameters, fake tensors, those of torch.func
        return None
    if _rules(cls) == _rules(torch.Tensor):
        return None
    return f"of class {cls.__name__}, which changes what functions of PyTorch compute"


def _rules(cls: type[torch.Tensor]) -> tuple[object, object]:
    """What a class does with functions, and with operators."""
    functions = cls.__torch_function__
    return getattr(functions, "__func__", functions), cls.__torch_dispatch__
