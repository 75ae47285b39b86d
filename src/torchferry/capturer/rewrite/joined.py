"""Outputs that a model lists item by item, and that a program has in one tensor.

A graph has the outputs it has: a list with an entry an image cannot be one of them. A patch that
says so (``Patch.joins``) makes it a list of one tensor, the entries one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from torchferry.values.flatten import Path, flatten

__all__ = ["joined_leaves"]


def joined_leaves(value: Any, fields: Collection[str]) -> list[tuple[Path, Any]]:
    """The leaves of some outputs with their paths, those listed in certain fields as one.

    Args:
        value: outputs of a model, nested.
        fields: names of the fields whose tensors are joined along their first axis.

    >>> outputs = {"items": [torch.zeros(2), torch.ones(1)], "pair": [1, 2]}
    >>> joined_leaves(outputs, ("items",))
    [(('items', 0), tensor([0., 0., 1.])), (('pair', 0), 1), (('pair', 1), 2)]
    """
    leaves: list[tuple[Path, Any]] = []
    lists: dict[Path, list[Any]] = {}
    for path, leaf in flatten(value)[0]:
        if len(path) > 1 and path[-2] in fields and isinstance(leaf, torch.Tensor):
            lists.setdefault(path[:-1], []).append(leaf)
            if path[-1] == 0:
                leaves.append((path, None))  # its place; the whole comes below
        else:
            leaves.append((path, leaf))
    return [(path, _whole(lists[path[:-1]]) if path[:-1] in lists else leaf)
            for path, leaf in leaves]  # fmt: skip


def _whole(items: Sequence[torch.Tensor]) -> torch.Tensor:
    return items[0] if len(items) == 1 else torch.cat(list(items))
