"""Buffers that nothing writes: the traced code may ask for their values, as they never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchferry.capturer.entry import around_forward
from torchferry.seams.pytorch import version_of
from torchferry.seams.tracing import set_constant

__all__ = ["known_constants"]

_MOST = 4096  # elements: nobody branches on the values of a large weight


@contextmanager
def known_constants(model: torch.nn.Module, apply: bool = True) -> Iterator[list[str]]:
    """Let a non-strict trace of a model know the values of its small buffers and parameters.

    Args:
        model: any module.
        apply: whether to do so; with ``False`` nothing happens.

    Yields:
        the names of those that the trace writes to: in another call they hold other values, and
        the model must be traced without knowing them.
    """
    if not apply:
        yield []
        return
    values = {name: tensor.detach().clone() for name, tensor in _tensors(model) if _fits(tensor)}
    written: list[str] = []

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*args: Any, **kwargs: Any) -> Any:
            known = [(name, one) for name, one in _tensors(model) if name in values]
            versions = [version_of(one) for _, one in known]
            for name, one in known:
                set_constant(one, values[name])
            result = forward(*args, **kwargs)
            now = dict(_tensors(model))
            written[:] = [
                name
                for (name, one), version in zip(known, versions, strict=True)
                if now.get(name) is not one or version_of(one) != version
            ]
            return result

        return entered

    with around_forward(model, wrap):
        yield written


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_buffers()
    yield from model.named_parameters()


def _fits(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and tensor.device.type != "meta" and tensor.numel() <= _MOST
