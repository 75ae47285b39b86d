"""Raise the opset, so that newer operators can be used."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from torchferry.optimizer.place import all_nodes

__all__ = ["raise_opset"]

_WANTED = 23
_IR_VERSION = 11
_CHANGED = frozenset({
    "DFT", "GridSample", "GroupNormalization", "QuantizeLinear",
    "Bernoulli", "GlobalLpPool", "MaxRoiPool", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "RoiAlign",
})  # fmt: skip
"""Operators that mean something else, or ask for more, in the newer opset.

From Bernoulli on they mean the same, but onnxruntime 1.32 has no kernel for their newer version.
QuantizeLinear means the same, but onnxruntime 1.32, which moves it past Reshape, refuses what it
made of a model of opset 21 or more: a model with it is to be optimized before it is quantized.
"""
_LOWEST = 18


def raise_opset(model: ir.Model, wanted: int = _WANTED) -> int:
    """Say that a model is of a newer opset where all its operators mean the same in it.

    From opset 18 to 23 operators got more types and more attributes with defaults; the few that
    changed, and reductions with axes as attributes, are looked for. Functions of the model count.

    Args:
        model: is changed in place; one of opset 17 or less is not.
        wanted: the opset, 23 for Attention, RotaryEmbedding and RMSNormalization.

    Returns:
        1 if it was raised, else 0.
    """
    known = [model.opset_imports, *(f.opset_imports for f in model.functions.values())]
    versions = {imports[""] for imports in known if "" in imports}
    if not versions or min(versions) < _LOWEST or max(versions) >= wanted:
        return 0
    if any(_changes(node, wanted) for node in all_nodes(model)):
        return 0
    for imports in known:
        if "" in imports:
            imports[""] = wanted
    model.ir_version = max(model.ir_version or 0, _IR_VERSION)
    return 1


def _changes(node: ir.Node, wanted: int) -> bool:
    """Whether a node would be invalid or another computation."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type in _CHANGED or _is_fused_later(node):
        return True
    try:
        schema = onnx.defs.get_schema(node.op_type, wanted, "")
    except onnx.defs.SchemaError:
        return node.op_type not in ("SimplifiedLayerNormalization",)
    inputs = len(node.inputs) <= schema.max_input
    return not inputs or any(name not in schema.attributes for name in node.attributes)


def _is_fused_later(node: ir.Node) -> bool:
    """Whether onnxruntime makes MatMulNBits of a product from opset 21 on, which rounds x.

    It is one with a dequantized weight that is transposed.
    """
    value = node.inputs[1] if node.op_type == "MatMul" else None
    for op_type in ("Transpose", "DequantizeLinear"):
        maker = None if value is None else value.producer()
        if maker is None or maker.op_type != op_type:
            return False
        value = maker.inputs[0]
    return True
