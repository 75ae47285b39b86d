"""Recipes: which weights get how many bits, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """How the weights of a model are stored.

    Attributes:
        name: as it stands in reports.
        kernel: ``blocks``: MatMulNBits, weights on grids of blocks, activations as floats;
            ``dynamic``: MatMulInteger, one scale a column, activations quantized at each run.
        bits: of the linear weights.
        block: elements that share a scale, of ``blocks``.
        accuracy: MatMulNBits' ``accuracy_level``: 4 multiplies in int8, 0 in float32.
        head: bits of the output layer, and of the embedding if they are tied; of one that is
            fitted to texts, ``bits``.
        fit: of weights that are not fitted to texts: ``nearest`` grid, or zero points by ``hqq``.
        wide: the share of the quantized size that 8-bit weights may add, the most sensitive
            first; a step of a decoder reads all of it, and takes as much longer.
        symmetric: whether grids that are fitted to texts have the middle code for a zero point,
            as the kernel is faster by a tenth then.
    """

    name: str
    kernel: Literal["blocks", "dynamic"]
    bits: int
    block: int = 32
    accuracy: int = 4
    head: int = 8
    fit: Literal["nearest", "hqq"] = "nearest"
    wide: float = 0.0
    symmetric: bool = False


RECIPES = {
    "int8": Recipe("int8", "blocks", 8),
    "int8-dynamic": Recipe("int8-dynamic", "dynamic", 8),
    "int4": Recipe("int4", "blocks", 4, wide=0.03, symmetric=True),
    "int4-hqq": Recipe("int4-hqq", "blocks", 4, fit="hqq"),
}
"""``int8`` and ``int4`` are for decoders, ``int8-dynamic`` for encoders: a third of the size of
``int8``, as exact for short vectors, and much worse for the activations of language models."""
