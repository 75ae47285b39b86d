"""What a kind of source gives: a module, and what came with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torchferry.sources.arguments import Arguments
from torchferry.sources.mapped import MappedFile

__all__ = ["RANDOM", "Loaded"]

RANDOM = "random weights"
"""The note on a model whose weights were drawn."""


@dataclass(frozen=True)
class Loaded:
    """A model as its source has it.

    Attributes:
        model: in eval mode.
        sets: input sets in any form that users may give, a `Maker`, or ``None`` if none came
            with the model: they are made for its class, or have to be given.
        program: what a ``.pt2`` file holds, else ``None``.
        files: the mapped files in which the weights lie, if that was asked for.
        training: whether the model came in training mode.
        note: what a user has to know of the weights: `RANDOM`, or what was merged into them.
        check: takes input sets, and raises `UsageError` if the model does not compute what its
            source does; ``None`` if the model is what the source holds.
    """

    model: nn.Module
    sets: Any = None
    program: torch.export.ExportedProgram | None = None
    files: tuple[MappedFile, ...] = ()
    training: bool = False
    note: str = ""
    check: Callable[[list[Arguments]], None] | None = None
