from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from rewriting import parse, same_numbers

from torchferry.optimizer.rules.onnxruntime.opset import raise_opset

PLAIN = """g (float[a,b,4] x) => (float[a,4] y) {
    axes = Constant<value_ints=[1]>() m = ReduceMean<keepdims=0>(x, axes) y = Gelu(m) }"""


def test_a_model_of_unchanged_operators_is_raised():
    before, after = parse(PLAIN), parse(PLAIN)
    assert raise_opset(after) == 1
    assert after.opset_imports[""] == 23
    assert after.ir_version == 11
    same_numbers(before, after, ({}, {"a": 1, "b": 1}))
    assert raise_opset(after) == 0


@pytest.mark.parametrize("opset", [13, 17, 23, 24])
def test_old_and_new_models_stay(opset):
    text = "g (float[a] x) => (float[a] y) { y = Relu(x) }"
    model = parse(text, opset)
    assert raise_opset(model) == 0
    assert model.opset_imports[""] == opset


GROUPS = """g (float[a,4,b] x, float[2] s) => (float[a,4,b] y) {
    y = GroupNormalization<num_groups=2>(x, s, s) }"""
QUANTIZED = """g (float[a] x) => (uint8[a] y) {
    s = Constant<value_float=0.1>() y = QuantizeLinear(x, s) }"""


def test_weights_may_be_quantized():
    text = """g (int8[a] x) => (float[a] y) {
        s = Constant<value_float=0.1>() y = DequantizeLinear(x, s) }"""
    before, after = parse(text), parse(text)
    assert raise_opset(after) == 1
    same_numbers(before, after)


DRAWN = "g (float[a] x) => (float[a] y) { y = RandomUniformLike(x) }"
REGIONS = """g (float[1,2,8,8] x, float[n,4] r, int64[n] i) => (float[n,2,k,l] y) {
    y = RoiAlign<output_height=2, output_width=2>(x, r, i) }"""


@pytest.mark.parametrize("text", [GROUPS, QUANTIZED, DRAWN, REGIONS])
def test_an_operator_that_changed_keeps_the_model_as_it_is(text):
    model = parse(text, 20)
    assert raise_opset(model) == 0
    assert model.opset_imports[""] == 20


def test_subgraphs_and_functions_count():
    text = """g (bool c, float[4,4,2] x, float[2] s) => (float[4,4,2] y) {
        y = If(c) <then_branch = t () => (float[4,4,2] a) {
                     a = GroupNormalization<num_groups=2>(x, s, s) },
                   else_branch = e () => (float[4,4,2] b) { b = Relu(x) }> }"""
    assert raise_opset(parse(text)) == 0
    head = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\n'
    function = '\n<domain: "own", opset_import: ["" : 20]> F (x) => (y) { y = Relu(x) }'
    proto = onnx.parser.parse_model(
        head + "g (float[a] x) => (float[a] y) { y = own.F(x) }" + function
    )
    model = ir.from_proto(proto)
    assert raise_opset(model) == 1
    assert [f.opset_imports[""] for f in model.functions.values()] == [23]


CODES = ",".join(map(str, range(-64, 64)))
PRODUCT = """g (float[a,64] x) => (float[m,n] y) {{
    w = Constant<value=int8[2,64] {{{codes}}}>() s = Constant<value_floats=[0.5,0.25]>()
    d = DequantizeLinear<axis=0>(w, s) {turn} y = {product} }}"""


@pytest.mark.parametrize(
    ("turn", "product", "raised"),
    [
        ("t = Transpose<perm=[1,0]>(d)", "MatMul(x, t)", 0),
        ("", "Gemm<transB=1>(x, d)", 1),
        ("t = Transpose<perm=[1,0]>(d) r = Relu(t)", "MatMul(x, r)", 1),
    ],
)
def test_products_that_onnxruntime_rounds_in_newer_opsets_stay(turn, product, raised):
    text = PRODUCT.format(turn=turn, product=product, codes=CODES)
    before, after = parse(text), parse(text)
    assert raise_opset(after) == raised
    same_numbers(before, after, ({}, {"a": 1}))
