"""Symbolic sizes: integer polynomials over names, equal when they mean the same. Pure Python."""

from torchferry.dims.condition import Condition
from torchferry.dims.dim import (
    Dim,
    Size,
    evaluate,
    is_positive,
    maximum,
    minimum,
    names_in,
    substitute,
)
from torchferry.dims.legal import Legal
from torchferry.dims.parse import parse_size
from torchferry.dims.rename import Renaming, solve, solve_renaming

__all__ = [
    "Condition",
    "Dim",
    "Legal",
    "Renaming",
    "Size",
    "evaluate",
    "is_positive",
    "maximum",
    "minimum",
    "names_in",
    "parse_size",
    "solve",
    "solve_renaming",
    "substitute",
]
