"""Arguments and dynamic shapes, nested as torch.export wants them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchferry.capturer.huggingface import accept_aliases
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import path_of
from torchferry.values.flatten import Path

__all__ = ["explicit_keywords", "export_arguments"]


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


@contextmanager
def explicit_keywords(model: torch.nn.Module, seen: Observation) -> Iterator[None]:
    """Make what ``forward`` takes as ``**kwargs`` parameters of their own, inside the block.

    torch.export 2.13 fails on dynamic shapes of ``**kwargs`` ("Must provide a tree_name when
    there might be a mismatch"), and ``generate()`` passes constants that way.
    """
    forward = model.forward
    signature = inspect.signature(forward)
    named = accept_aliases(model, seen.normalized(seen.best)[1])
    extra = [name for name in named if name not in signature.parameters]
    if not extra:
        yield
        return

    @functools.wraps(forward)
    def explicit(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    kind = inspect.Parameter.VAR_KEYWORD
    kept = [p for p in signature.parameters.values() if p.kind is not kind]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    explicit.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect
        parameters=[*kept, *added]
    )
    own = vars(model).get("forward")
    model.forward = explicit
    try:
        yield
    finally:
        if own is None:
            del model.forward
        else:
            model.forward = own


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
        if node.type in pytree.BUILTIN_TYPES:  # torch.export compares their types
            return pytree.SUPPORTED_NODES[node.type].unflatten_fn(children, node.context)
        return children

    return build(spec)
