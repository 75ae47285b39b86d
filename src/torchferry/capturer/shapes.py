"""Arguments and dynamic shapes, nested as torch.export wants them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchferry.capturer.huggingface import accept_aliases
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import path_of
from torchferry.values.flatten import Path

__all__ = ["export_arguments"]


def export_arguments(
    model: torch.nn.Module, seen: Observation, hint: Any
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """What to give torch.export: args, kwargs and dynamic shapes.

    Args:
        model: the module that was observed.
        seen: its observation; the best call is taken, with fresh copies of its tensors.
        hint: what stands for a dynamic dimension: ``Dim.DYNAMIC`` or ``Dim.AUTO``.

    Returns:
        ``(args, kwargs, dynamic_shapes)``, the last keyed by forward's parameters.
    """
    args, kwargs = seen.inputs_at(seen.sizes_of(seen.best))
    kwargs = accept_aliases(model, kwargs)
    by_path = seen.map_axes(lambda _argument, _axis: hint)
    axes: dict[Path, dict[int, Any]] = {unaliased(p): hints for p, hints in by_path.items()}

    def hints(path: Path) -> dict[int, Any]:
        return axes.get(unaliased(path), {})

    return args, kwargs, _dynamic_shapes(model, args, kwargs, hints)


def _dynamic_shapes(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    hints: Callable[[Path], dict[int, Any]],
) -> dict[str, Any]:
    """The hints nested as torch.export compares them: by parameter, then as the pytree is."""
    signature = inspect.signature(model.forward)
    shapes: dict[str, Any] = {}
    position = 0
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        prefix: Path
        if kind is inspect.Parameter.VAR_KEYWORD:
            shapes[name] = {k: _nested(v, (k,), hints) for k, v in value.items()}
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            shapes[name] = tuple(_nested(v, (position + i,), hints) for i, v in enumerate(value))
        else:
            prefix = (name,) if name in kwargs else (position,)
            position += name not in kwargs
            shapes[name] = _nested(value, prefix, hints)
    return shapes


def _nested(value: Any, prefix: Path, hints: Callable[[Path], dict[int, Any]]) -> Any:
    pairs, spec = pytree.tree_flatten_with_path(value)
    leaves = iter(
        [
            hints(prefix + path_of(key_path)) if isinstance(leaf, torch.Tensor) else None
            for key_path, leaf in pairs
        ]
    )

    def build(node: pytree.TreeSpec) -> Any:
        if node.is_leaf():
            return next(leaves)
        children = [build(child) for child in node.children()]
        if node.type is dict:
            return dict(zip(node.context, children, strict=True))
        return tuple(children) if node.type is tuple else children

    return build(spec)
