"""onnxscript's fusions for onnxruntime, until rules of our own do all that they do."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["fuse"]


def fuse(model: ir.Model) -> int:
    """Fuse attention, normalization and the like into operators of onnxruntime.

    Args:
        model: changed in place.

    Returns:
        How many fusions were made.
    """
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    _, counts = optimize_for_ort(model)
    return sum(counts.values())
