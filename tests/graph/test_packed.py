"""What counts as a weight of few bits."""

import numpy as np
import onnx_ir as ir
import pytest

from torchferry.graph.packed import Packed, packed_weights

CODES = np.ones((32, 64), np.int8)


def model(*nodes, **weights):
    values = {"x": ir.val("x", ir.DataType.FLOAT, [None, 64])}
    for name, content in weights.items():
        tensor = content if isinstance(content, ir.TensorProtocol) else ir.tensor(content)
        values[name] = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
    made = []
    for op_type, inputs, attributes in nodes:
        node = ir.node(op_type, [values[name] for name in inputs.split()], attributes)
        node.outputs[0].type = ir.TensorType(attributes.get("to", ir.DataType.FLOAT))
        made.append(node)
    graph = ir.Graph(
        [values["x"]], [made[-1].outputs[0]], nodes=made, opset_imports={"": 21},
        initializers=[values[name] for name in weights],
    )  # fmt: skip
    return ir.Model(graph, ir_version=10)


SCALES = np.ones(32, np.float32)


@pytest.mark.parametrize(
    ("tensor", "packed"),
    [
        (CODES, Packed("int8", 1, 2048, 8192)),
        (CODES.astype(np.uint8), Packed("uint8", 1, 2048, 8192)),
        (ir.tensor(CODES, dtype=ir.DataType.INT4), Packed("int4", 1, 1024, 8192)),
        (ir.tensor(CODES.astype(np.uint8), dtype=ir.DataType.FLOAT8E4M3FN),
         Packed("float8e4m3fn", 1, 2048, 8192)),
    ],
)  # fmt: skip
def test_weights_that_are_dequantized(tensor, packed):
    found = model(("DequantizeLinear", "w s", {"axis": 0}), w=tensor, s=SCALES)
    assert packed_weights(found) == (packed,)


def test_weights_that_are_cast_to_half():
    found = model(("Cast", "w", {"to": ir.DataType.FLOAT16}), w=CODES)
    assert packed_weights(found) == (Packed("int8", 1, 2048, 4096),)


def test_pairs_in_a_byte():
    node = ("MatMulNBits", "x w s z", {"bits": 4, "K": 64, "N": 64, "block_size": 32})
    pairs, zeros = CODES.reshape(64, 2, 16).astype(np.uint8), np.ones((512, 1), np.uint8)
    found = model(node, w=pairs, s=SCALES, z=zeros)
    assert packed_weights(found) == (Packed("int4", 1, 2048, 16384),)


def test_what_is_no_packed_weight():
    """Floats, masks, small ones, zero points, and what nobody reads."""
    found = model(
        ("DequantizeLinear", "small s z", {"axis": 0}), ("Where", "mask x wide", {}),
        small=CODES[0], s=SCALES, z=np.zeros(512, np.int8), mask=np.ones((32, 64), bool),
        wide=np.ones((32, 64), np.float32), unread=CODES, long=np.ones(1024, np.int64),
    )  # fmt: skip
    assert packed_weights(found) == ()


def test_kinds_are_counted_apart():
    found = model(
        ("Cast", "a", {"to": ir.DataType.FLOAT}), ("Cast", "b", {"to": ir.DataType.FLOAT}),
        ("Cast", "c", {"to": ir.DataType.FLOAT}),
        a=CODES, b=CODES.astype(np.uint8), c=CODES.astype(np.uint8),
    )  # fmt: skip
    assert [(one.kind, one.count) for one in packed_weights(found)] == [("uint8", 2), ("int8", 1)]
