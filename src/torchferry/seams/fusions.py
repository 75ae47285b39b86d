"""onnxscript's fusions for onnxruntime, where this version of onnxscript has them."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.seams.table import probe

__all__ = ["fuse_for_onnxruntime"]


def fuse_for_onnxruntime(model: ir.Model) -> dict[str, int]:
    """Fuse attention, normalization and the like in place; how many of each kind were made."""
    optimize = probe("onnxscript.rewriter.ort_fusions.optimize_for_ort")
    return {} if optimize is None else optimize(model)[1]
