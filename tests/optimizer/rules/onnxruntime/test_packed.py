"""Weights of four bits in many spellings against the same numbers, and what is left as it is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rewriting import run

from torchferry.optimizer.driver import apply_rules, remove_dead
from torchferry.optimizer.folding import Fold
from torchferry.optimizer.rules.onnxruntime.packed import RULES
from torchferry.optimizer.tally import Tally

ROWS, COLUMNS, GROUP = 72, 192, 32
GROUPS = COLUMNS // GROUP
RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(-8, 8, (ROWS, COLUMNS)).astype(np.int8)
SCALES = (RANDOM.random((ROWS, GROUPS), np.float32) + 0.5) * 0.01
ZEROS = RANDOM.integers(-8, 8, (ROWS, GROUPS)).astype(np.int8)
SHAPES = {
    "cut": np.array([ROWS, GROUPS, GROUP]), "whole": np.array([ROWS, COLUMNS]),
    "flat": np.array([ROWS * GROUPS, GROUP]),
}  # fmt: skip
HEAD = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'


def built(body, opset=21, shape="a,192", **weights):
    """A model of one product; weights are given as arrays, or as tensors."""
    tensors = {
        name: w if isinstance(w, ir.TensorProtocol) else ir.tensor(w)
        for name, w in {**SHAPES, **weights}.items()
    }
    text = HEAD.format(opset=opset) + f"g (float[{shape}] x) => (float[m,n] y) {{ {body} }}"
    proto = onnx.parser.parse_model(text)
    for name, tensor in tensors.items():
        if name in body:
            initializer = ir.to_proto(tensor)
            initializer.name = name
            proto.graph.initializer.append(initializer)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def rewritten(body, fold=False, **given):
    before, after = built(body, **given), built(body, **given)
    tally = Tally()
    apply_rules(after, [*([Fold()] if fold else []), *RULES], tally)
    remove_dead(after)
    again = Tally()
    assert apply_rules(after, RULES, again) == 0
    for count in (1, 3, 0):
        leading = (2,) if given.get("shape", "a,192").count(",") == 2 else ()
        x = np.random.default_rng(count).normal(size=(count, *leading, COLUMNS)).astype(np.float32)
        (want,), (got,) = run(before, {"x": x}), run(after, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return after, tally


def nbits(model):
    (node,) = (node for node in model.graph if node.op_type == "MatMulNBits")
    assert [node.attributes.get_int(name) for name in ("K", "N", "bits")] == [COLUMNS, ROWS, 4]
    return node


CAST = "c = Cast<to=1>(w) "
UNCUT = "t = Reshape(m, whole) "
LINEAR = "y = Gemm<transB=1>(x, t)"
BLOCKS = "t = DequantizeLinear<axis=1,block_size=32>(w, s) "
TURNED = BLOCKS + "u = Transpose<perm=[1,0]>(t) y = MatMul(x, u)"
SPELLINGS = {
    "blocks": (BLOCKS + LINEAR, {}),
    "blocks with zero points": (
        "t = DequantizeLinear<axis=1,block_size=32>(w, s, z) " + LINEAR, {}),
    "flat": (
        "q = Reshape(w, flat) r = Reshape(s, last) d = DequantizeLinear<axis=0>(q, r) "
        "t = Reshape(d, whole) " + LINEAR, {"last": np.array([-1])}),
    "arithmetic": (
        CAST + "g = Reshape(c, cut) o = Sub(g, f) m = Mul(o, e) " + UNCUT + LINEAR,
        {"f": ZEROS[..., None].astype(np.float32), "e": SCALES[..., None]}),
    "zero points that are cast": (
        "f = Cast<to=1>(z) " + CAST + "g = Reshape(c, cut) o = Sub(g, f) m = Mul(o, e) " + UNCUT
        + LINEAR,
        {"z": ZEROS[..., None], "e": SCALES[..., None]}),
    "a division": (
        CAST + "g = Reshape(c, cut) m = Div(g, e) " + UNCUT + LINEAR,
        {"e": 1 / SCALES[..., None]}),
    "an offset": (
        CAST + "g = Reshape(c, cut) n = Mul(e, g) m = Add(n, f) " + UNCUT + LINEAR,
        {"f": 3 * SCALES[..., None], "e": SCALES[..., None]}),
    "transposed": (TURNED, {}),
    "three axes": (TURNED, {"shape": "a,2,192"}),
    "columns first": (
        "t = DequantizeLinear<axis=0,block_size=32>(w, s) y = MatMul(x, t)",
        {"w": CODES.T.copy(), "s": SCALES.T.copy()}),
    "columns first with a bias": (
        "t = DequantizeLinear<axis=0,block_size=32>(w, s) y = Gemm(x, t, b)",
        {"w": CODES.T.copy(), "s": SCALES.T.copy(), "b": SCALES[:, 0]}),
    "one scale": ("t = DequantizeLinear(w, s) " + LINEAR, {"s": np.array(0.01, np.float32)}),
    "rows": ("t = DequantizeLinear<axis=0>(w, s) " + LINEAR, {"s": SCALES[:, 0].copy()}),
    "unsigned": (
        "t = DequantizeLinear<axis=1,block_size=32>(w, s, z) " + LINEAR,
        {"w": (CODES + 8).astype(np.uint8), "z": (ZEROS + 8).astype(np.uint8)}),
    "int4": (
        BLOCKS + LINEAR,
        {"w": ir.tensor(CODES, dtype=ir.DataType.INT4)}),
    "two bits": (
        BLOCKS + LINEAR, {"w": CODES % 4 - 2}),
    "some blocks of one code": (
        BLOCKS + LINEAR,
        {"w": np.where(np.arange(COLUMNS) < GROUP, np.int8(3), CODES)}),
    "some scales of zero": (
        BLOCKS + LINEAR,
        {"s": np.where(np.arange(GROUPS) < 1, np.float32(0), SCALES)}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_four_bits_are_packed(name):
    body, given = SPELLINGS[name]
    fold = name == "flat"  # its scales are laid out anew
    model, tally = rewritten(body, fold, **{"w": CODES, "s": SCALES, "z": ZEROS, **given})
    node = nbits(model)
    assert tally.applied["MatMulFourBits"] == 1
    assert node.inputs[1].const_value.nbytes == ROWS * COLUMNS // 2
    held = sum(v.const_value.nbytes for v in model.graph.initializers.values())
    assert held <= ROWS * COLUMNS * 5 / 8 + 4 * ROWS + ROWS * GROUPS


def test_nibbles_that_the_model_unpacks():
    """As checkpoints hold them; the first of a pair is the lower."""
    pairs = (CODES + 8).astype(np.uint8)
    body = (
        'low = BitwiseAnd(w, mask) high = BitShift<direction="RIGHT">(w, four) '
        "u = Unsqueeze(low, last) v = Unsqueeze(high, last) p = Concat<axis=-1>(u, v) "
        "q = Reshape(p, cut) c = Cast<to=1>(q) o = Sub(c, eight) m = Mul(o, e) " + UNCUT + LINEAR
    )
    model, _ = rewritten(
        body, fold=True, w=pairs[:, ::2] | pairs[:, 1::2] << 4, e=SCALES[..., None],
        mask=np.uint8(15), four=np.uint8(4), eight=np.float32(8), last=np.array([-1]),
    )  # fmt: skip
    node = nbits(model)
    assert len(node.inputs) == 3, "the zero point is the kernel's own"
    assert node.inputs[1].name == "w.packed"


READ_TWICE = (
    "h = Gemm<transB=1>(x, t) i = Gather<axis=1>(t, zero) j = ReduceSum<keepdims=0>(i) "
    "y = Add(h, j)"
)
DECLINED = {
    "eight bits": (
        BLOCKS + LINEAR,
        {"w": CODES * 3}, "more than four bits"),
    "a zero point between": (
        CAST + "o = Sub(c, f) t = Mul(o, e) " + LINEAR,
        {"f": np.float32(0.5), "e": np.float32(0.01)}, "a scale each"),
    "a scale for each number": (
        CAST + "t = Mul(c, e) " + LINEAR,
        {"e": RANDOM.random((ROWS, COLUMNS), np.float32)}, "a scale each"),
    "a distant zero point": (
        CAST + "o = Sub(c, f) t = Mul(o, e) " + LINEAR,
        {"f": np.float32(40), "e": np.float32(0.01)}, "a zero point has more"),
    "a table": (
        CAST + "n = Mul(c, e) t = Tanh(n) " + LINEAR, {"e": np.float32(0.01)}, None),
    "read twice": (
        BLOCKS + READ_TWICE,
        {"zero": np.array([0])}, "read elsewhere"),
    "scaled": (
        "t = DequantizeLinear<axis=1,block_size=32>(w, s) y = Gemm<transB=1,alpha=2.0>(x, t)",
        {}, "scaled"),
    "floats": (
        "t = Mul(w, e) " + LINEAR,
        {"w": CODES.astype(np.float32), "e": np.ones((ROWS, 1), np.float32)}, "integers"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_what_the_kernel_cannot_say_stays(name):
    body, given, reason = DECLINED[name]
    model, tally = rewritten(body, **{"w": CODES, "s": SCALES, **given})
    assert all(node.op_type != "MatMulNBits" for node in model.graph)
    if reason is not None:
        (said,) = tally.declined["MatMulFourBits"]
        assert reason in said
