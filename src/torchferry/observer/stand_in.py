"""Inputs of other sizes that stand for those that were seen, or for what was absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchferry.dims import Dim, evaluate
from torchferry.observer.infer import Argument
from torchferry.observer.resize import resize
from torchferry.observer.sets import Arguments, Key
from torchferry.observer.tree import replace_leaves
from torchferry.values.flatten import Path

__all__ = ["emptied", "enlarged", "stretched"]

_STATES = frozenset(("conv_states", "recurrent_states", "ssm_states", "conv_cache"))


def enlarged(
    sizes: Mapping[str, int], small: Sequence[str], seen: Sequence[Mapping[str, int]]
) -> dict[str, int]:
    """The sizes with the small ones replaced, by one seen in a call if that is no other's."""
    result = {name: size for name, size in sizes.items() if name not in small}
    for name in small:
        larger = [call[name] for call in seen if call.get(name, 0) >= 2]
        taken = set(result.values())
        result[name] = next(size for size in (*larger, *range(2, 99)) if size not in taken)
    return result


def stretched(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    keys: Sequence[Key],
    arguments: Mapping[Path, Argument],
    sizes: Mapping[str, int],
) -> Arguments:
    """The arguments at other sizes; ``keys`` are what ``arguments`` calls the positional ones."""
    generator = torch.Generator().manual_seed(0)

    def change(path: Path, leaf: Any) -> Any:
        key = keys[path[0]] if isinstance(path[0], int) else path[0]
        argument = arguments.get((key, *path[1:]))
        if argument is None or leaf is None or not argument.sizes:
            return leaf
        new = [evaluate(axis.size, sizes) for axis in argument.sizes]
        return resize(leaf, new, generator) if argument.axes else new[0]

    return replace_leaves(args, kwargs, change=change)


def emptied(
    value: Any,
    key: Key,
    arguments: Mapping[Path, Argument],
    sizes: Mapping[str, int],
    given: Mapping[Path, Any],
) -> Any:
    """What stands for a value in a call that lacks it, or a part of it.

    Args:
        value: what is given for the argument elsewhere.
        key: the first step of the paths.
        arguments: what is known of its leaves, by path.
        sizes: of dimensions by name; others stay as they are in the value.
        given: the leaves the call has.

    Returns:
        The value without elements, states as zeros. None when nothing of it is known to vary, or
        for a cross-attention: without its keys and values the model computes them, which is
        another graph.
    """
    lengths = []

    def change(path: Path, leaf: Any) -> Any:
        path = (key, *path[1:])
        argument = arguments.get(path)
        if path in given:
            return given[path]
        if argument is None or not isinstance(leaf, torch.Tensor):
            return leaf
        shape = [sizes.get(str(a.size), leaf.shape[a.index]) for a in argument.axes]
        length = _length(argument, leaf)
        if not _STATES.isdisjoint(path):  # a state space model starts from zeros
            lengths.append(0)
        elif length is not None:
            shape[length] = 0
            lengths.append(length)
        return leaf.new_zeros(shape)

    absent = arguments.keys() - given.keys()
    if any("cross_attention_cache" in path for path in absent):
        return None
    _, made = replace_leaves((), {"": value}, change=change)
    return made[""] if lengths else None


def _length(argument: Argument, leaf: torch.Tensor) -> int | None:
    """The axis along which an empty tensor is empty: the tokens of a cache, else the largest."""
    dynamic = [axis.index for axis in argument.axes if isinstance(axis.size, Dim)]
    if argument.cached and leaf.ndim - 2 in dynamic:
        return leaf.ndim - 2
    return max(dynamic, key=lambda index: leaf.shape[index], default=None)
