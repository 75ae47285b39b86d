"""onnxscript's optimizations, behind this room's face."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from torchferry.errors import UsageError

__all__ = ["TARGETS", "Target", "optimize"]

Target = Literal["onnx", "onnxruntime"]
TARGETS: tuple[Target, ...] = ("onnx", "onnxruntime")


def optimize(model: ir.Model, *, target: Target = "onnx") -> ir.Model:
    """Fold constants, remove what is unused, and for onnxruntime fuse into its own operators.

    Args:
        model: changed in place.
        target: ``onnx`` keeps to standard operators and runs everywhere; ``onnxruntime`` may use
            its ``com.microsoft`` operators.

    Returns:
        The model.

    Raises:
        UsageError: an unknown target.
    """
    if target not in TARGETS:
        raise UsageError(f"unknown target {target!r}: choose one of {', '.join(TARGETS)}")
    from onnxscript import optimizer

    optimizer.optimize_ir(model)
    if target == "onnxruntime":
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        model, _ = optimize_for_ort(model)
    return model
