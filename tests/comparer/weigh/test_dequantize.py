"""Quantized initializers, as the tools that write them leave them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnxruntime.quantization import QuantType, matmul_nbits_quantizer, quantize_dynamic
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.quantization.quantize import quantize_static

from torchferry.comparer.weigh.dequantize import dequantized
from torchferry.comparer.weigh.weight_error import measure

WEIGHT = np.random.default_rng(0).standard_normal((40, 24)).astype("f4")


@pytest.fixture
def plain(tmp_path):
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 40] x) => (float[n, 24] y) '
        "{ y = MatMul(x, w) }"
    )
    value = ir.Value(name="w", const_value=ir.tensor(WEIGHT))
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(WEIGHT.shape)
    node = model.graph[0]
    model.graph.register_initializer(value)
    node.replace_input_with(1, value)
    path = tmp_path / "plain.onnx"
    ir.save(model, path)
    return path


def read(path):
    graph = ir.load(path).graph
    found = [
        stored
        for node in graph
        for value in node.inputs
        if value is not None and value.const_value is not None
        if (stored := dequantized(value, node, graph.initializers)) is not None
    ]
    (stored,) = found
    return stored


class Calls(CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": np.ones((2, 40), "f4")}]

    def get_next(self):
        return self.left.pop() if self.left else None


def dynamic(source, target, **options):
    quantize_dynamic(source, target, **options)


def static(source, target, **options):
    quantize_static(str(source), str(target), Calls(), **options)


def blocks(source, target, **options):
    tool = matmul_nbits_quantizer.MatMulNBitsQuantizer(onnx.load(source), **options)
    tool.process()
    tool.model.save_model_to_file(str(target))


WAYS = {
    "dynamic": (dynamic, {}),
    "dynamic, channels": (dynamic, {"per_channel": True}),
    "dynamic, signed": (dynamic, {"weight_type": QuantType.QInt8}),
    "static": (static, {}),
    "static, channels": (static, {"per_channel": True}),
    "static, 16 bits": (static, {"weight_type": QuantType.QInt16}),
    "blocks of 16": (blocks, {"block_size": 16, "is_symmetric": True}),
    "blocks of 32": (blocks, {"block_size": 32, "is_symmetric": False}),
    "QDQ blocks": (
        blocks,
        {"block_size": 16, "quant_format": matmul_nbits_quantizer.QuantFormat.QDQ},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_within_half_a_step(way, plain, tmp_path):
    quantize, options = WAYS[way]
    quantize(plain, tmp_path / "q.onnx", **options)
    stored = read(tmp_path / "q.onnx")
    weight = torch.from_numpy(WEIGHT)
    weight = weight if tuple(stored.values.shape) == WEIGHT.shape else weight.T
    assert measure(weight, stored) is None
    assert float(stored.slack.max()) < 0.8
    wrong = weight.clone()
    wrong[7, 3] += 2.5 * float(stored.slack.expand(weight.shape)[7, 3])
    assert measure(wrong, stored).position == (7, 3)


def test_what_is_not_quantized(plain):
    graph = ir.load(plain).graph
    assert dequantized(graph.initializers["w"], graph[0], graph.initializers) is None
    codes = ir.Value(name="codes", const_value=ir.tensor(np.arange(4, dtype="i1")))
    codes.type = ir.TensorType(ir.DataType.INT8)
    assert dequantized(codes, graph[0], {}) is None
