"""One symbol for the sizes of one argument that have one name, as those of a cache's tensors.

The observation saw them equal in every call, and the ONNX model takes them as one dimension. torch
gives each size a symbol of its own, so that a cache of 32 layers has 128, and every operator that
meets two of them proves again that they are equal.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from torchferry.capturer.watch import ShapeEvents
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.seams.symbols import share_symbols
from torchferry.values.flatten import flatten

__all__ = ["share_named_sizes"]


def share_named_sizes(
    seen: Observation, args: tuple[Any, ...], kwargs: dict[str, Any], events: ShapeEvents
) -> AbstractContextManager[None]:
    """Have torch.export trace sizes that share argument and name with one symbol, in the block.

    The program refuses calls in which they differ.

    Args:
        seen: has the names.
        args: what is traced.
        kwargs: the same.
        events: gets the place of each size, as of one that has its own symbol.
    """
    names = seen.map_sizes(lambda _, axis: str(axis.size))
    named = {unaliased(path): found for path, found in names.items()}
    by_tensor: dict[int, dict[int, tuple[Any, str]]] = {}
    arguments: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    for top, value in arguments.items():
        for path, leaf in flatten(value)[0]:
            if isinstance(leaf, torch.Tensor):
                axes = named.get(unaliased((top, *path)), {})
                by_tensor[id(leaf)] = {axis: (top, name) for axis, name in axes.items()}

    def group_of(tensor: Any, axis: int) -> tuple[Any, str] | None:
        return by_tensor.get(id(tensor), {}).get(axis)

    def share(symbol: str, source: str) -> None:
        events.places[source] = symbol

    return share_symbols(group_of, share)
