"""What ``torch.onnx.InputObserver`` recorded, as an observation."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.observer.given import to_observation
from torchferry.observer.observation import Call
from torchferry.seams.pytorch import pytree

__all__ = ["as_observation"]


def as_observation(model: torch.nn.Module, seen: Any) -> Observation:
    """An observation, made from a ``torch.onnx.InputObserver`` (torch 2.13) where one is given.

    Args:
        model: the module that was observed.
        seen: an `Observation`, which is returned as it is, a function of sizes, or an
            ``InputObserver``.

    Raises:
        UsageError: something else, or an observer that saw no call.
    """
    if isinstance(seen, Observation) or (callable(seen) and not _is_input_observer(seen)):
        return to_observation(model, seen)
    if not _is_input_observer(seen):
        raise UsageError(
            f"capture needs what was observed: a torchferry.Observation (with observe(model) as "
            f"seen) or a torch.onnx.InputObserver, not a {type(seen).__name__}"
        )
    info = seen.info
    if info is None or not info.inputs:
        raise UsageError(
            "the InputObserver saw no call: run the model inside `with observer(model):`"
        )
    result = Observation(inspect.signature(model.forward), type(model).__name__)
    for number, given in enumerate(info.inputs):
        outputs = None
        if number < len(info.flat_outputs):
            outputs = pytree.tree_unflatten(info.flat_outputs[number], info.outputs_specs[number])
        kwargs = {**given.kwargs, **given.cst_kwargs}
        result.add(Call(tuple(given.args), kwargs, outputs, info.latencies[number]
                        if number < len(info.latencies) else 0.0))  # fmt: skip
    return result


def _is_input_observer(value: Any) -> bool:
    return any(cls.__name__ == "InputObserver" for cls in type(value).__mro__)
