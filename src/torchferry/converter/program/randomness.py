"""Which nodes of an FX graph draw random numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torchferry.seams.pytorch import schema_of

__all__ = ["is_random", "may_be_random"]

# Arguments of random operators that, false or 0, make them draw nothing.
_NO_DRAW = {"dropout", "dropout_p", "p", "train", "training"}


def is_random(node: fx.Node) -> bool:
    """Whether a node draws from PyTorch's random numbers.

    Attention, recurrent layers and dropout do not where their dropout is 0 or they do not train.
    """
    if not may_be_random(node.target):
        return False
    schema = schema_of(node.target)
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        given = argument.default_value if given is None else given
        if argument.name in _NO_DRAW and not isinstance(given, fx.Node) and not given:
            return False
    return True


def may_be_random(target: Any) -> bool:
    """Whether an operator draws random numbers with some of its arguments."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
