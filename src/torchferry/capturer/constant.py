"""Buffers that nothing writes: the traced code may ask for their values, as they never change.

Nor do tensors that a model keeps in attributes, lists and objects, as a scheduler its time steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchferry.capturer.entry import around_forward
from torchferry.capturer.state.places import Place, exchanged, find_places
from torchferry.seams.pytorch import version_of
from torchferry.seams.tracing import lift_constant, set_constant
from torchferry.values.kinds import attempt

__all__ = ["find_kept_tensors", "known_constants"]

_MOST = 4096  # elements: nobody branches on the values of a large weight


@contextmanager
def known_constants(
    model: torch.nn.Module, apply: bool = True, *, attributes: bool = False
) -> Iterator[list[str]]:
    """Let a non-strict trace of a model know the values of its small buffers and parameters.

    Args:
        model: any module.
        apply: whether to do so; with ``False`` nothing happens.
        attributes: those of other tensors in attributes, containers and objects too; the program
            has copies of them.

    Yields:
        the names of those that the trace writes to: in another call they hold other values, and
        the model must be traced without knowing them.
    """
    if not apply:
        yield []
        return
    kept = find_kept_tensors(model) if attributes else {}
    tensors = [*_tensors(model), *((str(place), tensor) for place, tensor in kept.items())]
    values = {name: tensor.detach().clone() for name, tensor in tensors if _fits(tensor)}
    written: list[str] = []

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*args: Any, **kwargs: Any) -> Any:
            lifted = {place: lift_constant(tensor) for place, tensor in kept.items()}
            known = {name: one for name, one in _tensors(model) if name in values}
            followed = [*known.items(), *((str(place), one) for place, one in lifted.items())]
            for name, one in followed:
                set_constant(one, values[name])
            versions = [version_of(one) for _, one in followed]
            with ExitStack() as stack:
                # An object that cannot be copied stays what it is.
                attempt(stack.enter_context, exchanged(model, lifted))
                result = forward(*args, **kwargs)
            now = dict(_tensors(model))
            written[:] = [
                name
                for (name, one), version in zip(followed, versions, strict=True)
                if version_of(one) != version or now.get(name) is not known.get(name)
            ]
            return result

        return entered

    with around_forward(model, wrap):
        yield written


def find_kept_tensors(model: torch.nn.Module) -> dict[Place, torch.Tensor]:
    """The small tensors of a model that are neither buffers nor parameters, by place."""
    named = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    return {
        place: value for place, value in find_places(model).items()
        if isinstance(value, torch.Tensor) and _fits(value) and str(place) not in named
    }  # fmt: skip


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_buffers()
    yield from model.named_parameters()


def _fits(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and tensor.device.type != "meta" and tensor.numel() <= _MOST
