"""Arguments and dynamic shapes, nested as torch.export wants them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.observer.hints import nest_shapes
from torchferry.observer.naming import unaliased
from torchferry.values.flatten import Path

__all__ = ["export_arguments"]


def export_arguments(
    model: torch.nn.Module, seen: Observation, hint: Any, *, as_seen: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """What to give torch.export: args, kwargs and dynamic shapes.

    Args:
        model: the module that was observed.
        seen: its observation; the best call is taken, with fresh copies of its tensors.
        hint: what stands for a dynamic dimension: ``Dim.DYNAMIC`` or ``Dim.AUTO``.
        as_seen: keep dynamic sizes of 0 and 1. Otherwise they are enlarged, as code often takes
            another way there: attention has no causal mask for a single token.

    Returns:
        ``(args, kwargs, dynamic_shapes)``, the last keyed by forward's parameters.
    """
    args, kwargs = _example(seen, as_seen=as_seen)
    kwargs = accept_aliases(model, kwargs)
    by_path = seen.map_sizes(lambda _argument, _axis: hint)
    found = {unaliased(p): hints for p, hints in by_path.items()}

    def hints(path: Path, leaf: Any) -> Any:
        return found.get(unaliased(path), {} if isinstance(leaf, torch.Tensor) else None)

    return args, kwargs, _dynamic_shapes(model, args, kwargs, hints)


def _example(seen: Observation, *, as_seen: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sizes = seen.sizes_of(seen.best)
    larger = _enlarged(sizes)
    if as_seen or larger == sizes or not seen.legal.allows(larger):
        return seen.inputs_at(sizes)
    try:
        return seen.inputs_at(larger)
    except UsageError:  # the user's function gives no inputs of these sizes
        return seen.inputs_at(sizes)


def _enlarged(sizes: Mapping[str, int]) -> dict[str, int]:
    """No size below 2, those that were differing from all others."""
    large = {name: size for name, size in sizes.items() if size > 1}
    for name in sizes:
        if name not in large:
            large[name] = next(n for n in itertools.count(2) if n not in large.values())
    return large


def _dynamic_shapes(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    hints: Callable[[Path, Any], Any],
) -> dict[str, Any]:
    """The hints nested as torch.export compares them: by parameter, then as the pytree is."""
    signature = inspect.signature(model.forward)
    shapes: dict[str, Any] = {}
    position = 0
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        prefix: Path
        if kind is inspect.Parameter.VAR_KEYWORD:
            shapes[name] = {k: nest_shapes(v, (k,), hints) for k, v in value.items()}
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            shapes[name] = tuple(
                nest_shapes(v, (position + i,), hints) for i, v in enumerate(value)
            )
        else:
            prefix = (name,) if name in kwargs else (position,)
            position += name not in kwargs
            shapes[name] = nest_shapes(value, prefix, hints)
    return shapes
