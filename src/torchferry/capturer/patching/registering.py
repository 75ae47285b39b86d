"""Classes that PyTorch's pytrees must know before a model can be exported: found in the values."""

from __future__ import annotations

from typing import Any

from torchferry.observer import Observation
from torchferry.seams.pytorch import pytree
from torchferry.values.flatten import register_pytrees
from torchferry.values.kinds import class_name, find_kind

__all__ = ["register_arguments", "register_containers"]


def register_containers(value: Any) -> tuple[str, ...]:
    """Register every class that holds other values, of a nested value, and say which.

    Dataclasses and what `torchferry.values.kinds` knows; what is registered stays registered, so
    that the exported program can be run.

    Args:
        value: arguments or outputs of a model, nested in anything.

    Returns:
        names of the classes that were not registered before, as ``module:qualname``.

    >>> register_containers({"x": [1, 2]})
    ()
    """
    found: dict[type[Any], None] = {}
    _collect(value, found)
    new = [cls for cls in found if cls not in pytree.SUPPORTED_NODES]
    if new:
        register_pytrees(*new)
    return tuple(class_name(cls) for cls in new if cls in pytree.SUPPORTED_NODES)


def register_arguments(seen: Observation) -> tuple[str, ...]:
    """Register the classes in the arguments of an observation's calls, and say which are new.

    Args:
        seen: what it inferred while they were opaque is forgotten.
    """
    names = register_containers([(call.args, call.kwargs) for call in seen.calls])
    if names:
        vars(seen).pop("arguments", None)
    return names


def _collect(value: Any, found: dict[type[Any], None]) -> None:
    cls = type(value)
    kind = find_kind(cls)
    if kind is None:
        return
    if kind.pytree:
        found[cls] = None
    children, _ = kind.flatten(value)
    for child in children.values():
        _collect(child, found)
