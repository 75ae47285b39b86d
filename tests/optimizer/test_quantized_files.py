"""Files that onnxruntime's own quantizers wrote: their weights stay packed, their numbers too."""

import logging

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from torchferry.graph.packed import packed_weights
from torchferry.optimizer import OptimizationOptions

SIZE = 128
RANDOM = np.random.default_rng(0)


def source(path):
    """A convolution, a product with a bias and a plain one, all large enough to matter."""
    weights = {
        "k": RANDOM.normal(size=(SIZE, SIZE, 1)), "w": RANDOM.normal(size=(SIZE, SIZE)),
        "v": RANDOM.normal(size=(SIZE, SIZE)), "b": RANDOM.normal(size=SIZE),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "conv"),
        helper.make_node("ReduceMean", ["c", "last"], ["m"], "mean", keepdims=0),
        helper.make_node("Gemm", ["m", "w", "b"], ["g"], "gemm", transB=1),
        helper.make_node("Relu", ["g"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "product"),
    ]
    held = [numpy_helper.from_array((w * 0.1).astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SIZE, "time"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", SIZE])],
        [*held, numpy_helper.from_array(np.array([2]), "last")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path)


def feed(batch, time):
    x = np.random.default_rng(batch * 100 + time).normal(size=(batch, SIZE, time))
    return {"x": x.astype(np.float32)}


class Feeds(CalibrationDataReader):
    def __init__(self):
        self.left = [feed(2, 5), feed(3, 4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def static(path, out, **settings):
    quantize_static(path, out, Feeds(), **settings)


WRITERS = {
    "pairs of nodes": lambda i, o: static(i, o, quant_format=QuantFormat.QDQ),
    "pairs, each channel": lambda i, o: static(
        i, o, quant_format=QuantFormat.QDQ, per_channel=True, weight_type=QuantType.QInt8
    ),
    "pairs, unsigned": lambda i, o: static(
        i, o, quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
        weight_type=QuantType.QUInt8,
    ),
    "operators": lambda i, o: static(i, o, quant_format=QuantFormat.QOperator),
    "dynamic": lambda i, o: quantize_dynamic(i, o, weight_type=QuantType.QInt8),
    "dynamic, each channel": lambda i, o: quantize_dynamic(i, o, per_channel=True),
}  # fmt: skip


def run(model, batch, time):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed(batch, time))[0]


def held(model):
    return sum(value.const_value.nbytes for value in model.graph.initializers.values())


@pytest.mark.filterwarnings("ignore")  # of the quantizers
@pytest.mark.parametrize("patterns", ["default", "default+onnxruntime"])
@pytest.mark.parametrize("name", WRITERS)
def test_weights_stay_packed(name, patterns, tmp_path):
    logging.disable(logging.WARNING)
    source(tmp_path / "in.onnx")
    WRITERS[name](str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"))
    logging.disable(logging.NOTSET)
    before, after = (ir.load(tmp_path / "out.onnx") for _ in range(2))
    OptimizationOptions(patterns).apply(after)
    assert held(after) <= held(before)
    packed = packed_weights(after)
    assert sum(one.count for one in packed) == sum(one.count for one in packed_weights(before)) > 1
    assert held(after) < 3 * SIZE * SIZE * 2, "some weights are floats again"
    for sizes in ((1, 1), (2, 5), (4, 7)):
        np.testing.assert_allclose(run(after, *sizes), run(before, *sizes), rtol=1e-4, atol=1e-4)
