"""torchao's quantization against eager, and whole layers that it quantized."""

import warnings

import onnx_ir as ir
import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.graph import io

pytest.importorskip("torchao")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao import quantization as ao
    from torchao.utils import unwrap_tensor_subclass

OPS = torch.ops.torchao
I8, U8 = torch.int8, torch.uint8
STEPS = torch.arange(-24, 24).reshape(4, 12) * 0.23 + 0.01
FLOATS = (STEPS,), (STEPS[:1] * 1.7,), (STEPS.repeat(2, 1) * 40,)
BYTES = [(one.mul(9).to(I8),) for (one,) in FLOATS]


@pytest.mark.parametrize("block", [[1, 12], [1, 4]])
@pytest.mark.parametrize("mapping", ["SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"])
@pytest.mark.parametrize("keepdim", [True, False])
def test_there_and_back(block, mapping, keepdim):
    def function(x):
        scale, zero = OPS.choose_qparams_affine(
            x, mapping, block, I8, -100, 100, 1e-5, torch.float32, torch.int32, keepdim
        )
        steps = OPS.quantize_affine(x, block, scale, zero, I8, -100, 100)
        return scale, zero, steps, OPS.dequantize_affine(steps, block, scale, zero, I8)

    check(function, *FLOATS, target=OPS.dequantize_affine.default)


def test_one_scale_for_all():
    scale, zero = torch.tensor(0.1), torch.tensor(3)

    def function(x):
        steps = OPS.quantize_affine(x, list(x.shape), scale, zero, U8)
        return steps, OPS.dequantize_affine(steps, list(x.shape), scale, zero, U8)

    check(function, *FLOATS, target=OPS.quantize_affine.default)


def test_blocks_of_both_axes():
    scale, zero = torch.rand(2, 3) + 0.5, torch.randint(-5, 5, (2, 3))

    def function(x):
        steps = OPS.quantize_affine(x, [2, 4], scale, zero, I8, -128, 127)
        return OPS.dequantize_affine(steps, [2, 4], scale, zero, I8)

    check(function, FLOATS[0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("block", [[1, 12], [1, 3]])
def test_dequantize(dtype, block):
    zeros = torch.tensor([3.0, -2, 0, 1])[: 12 // block[1]].to(dtype)

    def function(x):
        count = x.shape[0], 12 // block[1]
        scale = torch.tensor([0.1, 0.2, 0.3, 0.4])[: count[1]].expand(count)
        return OPS.dequantize_affine(x, block, scale, zeros.expand(count), I8, -128, 127)

    check(function, *BYTES, tolerance=1e-5)


def test_dequantize_without_zero_point_to_half():
    def function(x):
        scale = torch.full((x.shape[0], 1), 0.3)
        return OPS.dequantize_affine(x, [1, 12], scale, None, I8, output_dtype=torch.float16)

    check(function, *BYTES)


LAYERS = {
    "int8": ao.Int8WeightOnlyConfig(),
    "int8 twice": ao.Int8DynamicActivationInt8WeightConfig(),
    "int4": ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    "int4 and int8": ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)
    ),
}


def layer(config):
    module = torch.nn.Sequential(torch.nn.Linear(256, 512, bias=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao.quantize_(module, config)
        unwrap_tensor_subclass(module)
    return module


@pytest.mark.filterwarnings("ignore")  # of torchao's own code, as it is traced
@pytest.mark.parametrize("config", LAYERS.values(), ids=LAYERS)
def test_a_quantized_layer(config, tmp_path):
    module = layer(config)
    sets = [(torch.randn(rows, 256),) for rows in (3, 7)]
    model = check(module, *sets, tolerance=1e-3)
    weights = [v for v in model.graph.initializers.values() if v.shape.numpy() == (512, 256)]
    assert {value.dtype for value in weights} <= {ir.DataType.INT8}
    io.save(translate(export(module, *sets), 20), tmp_path / "model.onnx")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < 2 * 512 * 256
