"""Rewrite a model for a target without changing what it computes."""

from torchferry.optimizer.block import Block
from torchferry.optimizer.entry import TARGETS, Target, optimize
from torchferry.optimizer.options import OptimizationOptions
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require
from torchferry.optimizer.rules.experimental import kernel_library, save_library
from torchferry.optimizer.tally import Tally
from torchferry.optimizer.widen import widen

__all__ = [
    "TARGETS",
    "Block",
    "Ops",
    "OptimizationOptions",
    "Rule",
    "Tally",
    "Target",
    "Var",
    "kernel_library",
    "optimize",
    "require",
    "save_library",
    "widen",
]
