"""Weights that a model holds in few bits and computes with as floats."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["Packed", "packed_weights"]

_LEAST = 256  # elements; what has fewer is a parameter of the quantization
_FLOAT_BITS = {ir.DataType.FLOAT16: 16, ir.DataType.BFLOAT16: 16, ir.DataType.DOUBLE: 64}
_ZERO_POINTS = {
    "ConvInteger": (2, 3), "DequantizeLinear": (2,), "MatMulInteger": (2, 3), "MatMulNBits": (3,),
    "QuantizeLinear": (2,),
}  # fmt: skip


@dataclass(frozen=True)
class Packed:
    """The weights of one kind.

    Attributes:
        kind: ``int8``, ``uint8``, ``int4``, ``float8e4m3fn``.
        count: how many there are.
        size: their bytes in the file.
        plain: the bytes that they would take as the floats that they stand for.
    """

    kind: str
    count: int
    size: int
    plain: int


def packed_weights(model: ir.Model) -> tuple[Packed, ...]:
    """The weights that take less than the floats they stand for, kind by kind, largest first.

    Scales and zero points are not counted.
    """
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype in (ir.DataType.BOOL, ir.DataType.STRING):
            continue
        reader, bits = _reader(value), tensor.dtype.bitwidth
        if bits > 8 or tensor.size < _LEAST or reader is None:
            continue
        packed = reader.op_type == "MatMulNBits"
        stored = reader.attributes.get_int("bits", 4) if packed else bits
        kind = f"int{stored}" if packed else tensor.dtype.name.lower()
        plain = tensor.size * 8 // stored if packed else tensor.size
        wide = _FLOAT_BITS.get(reader.outputs[0].dtype or ir.DataType.FLOAT, 32)
        kinds[kind].append((tensor.nbytes, plain * wide // 8))
    found = (
        Packed(kind, len(sizes), sum(s for s, _ in sizes), sum(p for _, p in sizes))
        for kind, sizes in kinds.items()
    )
    return tuple(sorted(found, key=lambda one: -one.size))


def _reader(value: ir.Value) -> ir.Node | None:
    """A node that reads a value otherwise than as a zero point."""
    return next(
        (node for node, place in value.uses() if place not in _ZERO_POINTS.get(node.op_type, ())),
        None,
    )
