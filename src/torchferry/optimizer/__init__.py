"""Rewrite a model for a target without changing what it computes."""

from torchferry.optimizer.borrowed import TARGETS, Target, optimize
from torchferry.optimizer.widen import widen

__all__ = ["TARGETS", "Target", "optimize", "widen"]
