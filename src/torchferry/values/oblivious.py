"""How torch sees sizes of 0 and 1 while it traces."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torchferry.seams.pytorch import size_oblivious

__all__ = ["sizes_oblivious"]


def sizes_oblivious(on: bool = True) -> AbstractContextManager[None]:
    """Whether a size that is 0 or 1 in the example stays dynamic where torch traces in the block.

    By itself torch takes a dynamic size for one that is neither 0 nor 1, and fixes one that is 1
    in the example (``torch.fx.experimental._config.backed_size_oblivious``).

    >>> import torch
    >>> with sizes_oblivious():
    ...     program = torch.export.export(
    ...         torch.nn.ReLU(), (torch.ones(1, 2),), dynamic_shapes=({0: torch.export.Dim("n")},)
    ...     )
    >>> [type(size).__name__ for size in next(iter(program.graph.nodes)).meta["val"].shape]
    ['SymInt', 'int']
    """
    return size_oblivious(on)
