"""Which rewrites a compiled graph goes through, in the words users of compile backends know."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.optimizer.borrowed import Target, optimize

__all__ = ["PATTERNS", "OptimizationOptions"]

_log = logging.getLogger("torchferry")

PATTERNS: dict[str, Target] = {
    "default": "onnx",
    "default+onnxruntime": "onnxruntime",
    "default+onnxruntime+experimental": "onnxruntime",
}
"""The sets of rewrites by name, and what each is written for."""

_PROCESSORS = ("CPU", "CUDA")


@dataclass(frozen=True)
class OptimizationOptions:
    """How a graph is rewritten before onnxruntime loads it.

    >>> OptimizationOptions("default").target
    'onnx'

    Attributes:
        patterns: ``default`` keeps to standard operators, ``default+onnxruntime`` fuses into
            onnxruntime's own, ``default+onnxruntime+experimental`` adds kernels of our making
            where there are any; ``None`` or ``""`` rewrites nothing.
        constant_folding: compute what depends on no input once. The rewrites need it, so
            ``False`` goes with ``patterns=None`` only.
        processor: ``CPU``, ``CUDA`` or ``CPU,CUDA``: where the rewritten graph will run.
        verbose: 1 logs how many nodes there were and are.
        max_iter: how often the rewrites are tried; -1, the only choice, is until nothing changes.

    Raises:
        UsageError: an unknown set or processor, or a combination that does not exist.
    """

    patterns: str | None = "default+onnxruntime"
    constant_folding: bool = True
    processor: str = "CPU"
    verbose: int = 0
    max_iter: int = -1

    def __post_init__(self) -> None:
        if self.patterns and self.patterns not in PATTERNS:
            raise UsageError(
                f"unknown patterns {self.patterns!r}: choose {', '.join(PATTERNS)}, or None"
            )
        unknown = [p for p in self.processor.split(",") if p.strip().upper() not in _PROCESSORS]
        if unknown:
            raise UsageError(f"unknown processor {unknown[0]!r}: choose {', '.join(_PROCESSORS)}")
        if self.patterns and not self.constant_folding:
            raise UsageError(
                f"patterns {self.patterns!r} need constant folding: leave constant_folding=True, "
                "or give patterns=None"
            )
        if self.max_iter != -1:
            raise UsageError(
                f"max_iter={self.max_iter} cannot be asked for: rewrites go on until nothing "
                "changes, which is -1"
            )

    @property
    def target(self) -> Target | None:
        """What `optimize` is asked for; ``None`` when nothing is to be rewritten."""
        return PATTERNS[self.patterns] if self.patterns else None

    def apply(self, model: ir.Model) -> ir.Model:
        """Rewrite a model, which may be changed in place.

        Returns:
            The rewritten model.
        """
        target = self.target
        if target is None:
            return model
        if self.patterns and self.patterns.endswith("experimental"):
            _log.warning(
                "patterns %r: there is no fused element-wise kernel yet, so the graph is what "
                "'default+onnxruntime' makes",
                self.patterns,
            )
        before = len(model.graph)
        model = optimize(model, target=target)
        level = logging.INFO if self.verbose else logging.DEBUG
        _log.log(level, "patterns %r: %d nodes became %d", self.patterns, before, len(model.graph))
        return model
