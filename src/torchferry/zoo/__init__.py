"""Models of real architectures with random weights, and inputs that fit them."""

from __future__ import annotations

from torchferry.zoo.catalogue import FamilyRow, ZooModel, build, families, names, rows, variants
from torchferry.zoo.dummy_llm import dummy_llm
from torchferry.zoo.tasks import input_sets
from torchferry.zoo.tiny_llm import get_tiny_llm

__all__ = [
    "FamilyRow",
    "ZooModel",
    "build",
    "dummy_llm",
    "families",
    "get_tiny_llm",
    "input_sets",
    "names",
    "rows",
    "variants",
]
