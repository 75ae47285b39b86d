"""Rewrite a model for a target without changing what it computes."""

from torchferry.optimizer.borrowed import TARGETS, Target, optimize
from torchferry.optimizer.options import OptimizationOptions
from torchferry.optimizer.widen import widen

__all__ = ["TARGETS", "OptimizationOptions", "Target", "optimize", "widen"]
