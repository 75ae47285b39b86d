"""Fake quantization against eager, of activations and of weights, which are stored quantized."""

import onnx_ir as ir
import pytest
import torch
from op_case import check, export
from torch import nn
from torch.nn import functional as F

import torchferry as tf
from torchferry.converter.translate import translate
from torchferry.seams.pytorch import quantized_operators

quantized_operators()  # torch alone cannot trace these
aten = torch.ops.aten
# not near a tie of the scales below, where dividing and multiplying may part
STEPS = torch.arange(-12, 12).reshape(4, 6) * 0.23 + 0.01
FLOATS = (STEPS,), (STEPS[:1] * 1.7,), (STEPS.repeat(2, 1) * 40,)
SCALES = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
ZEROS = torch.tensor([0, 1, 2, -3, -4, 5])
I32 = torch.int32

FAKE = [
    (aten.fake_quantize_per_tensor_affine.default,
     lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)),
    (aten.fake_quantize_per_tensor_affine.default,
     lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 1, -8, 7)),
    (aten.fake_quantize_per_tensor_affine.default,
     lambda x: torch.fake_quantize_per_tensor_affine(x, 0.001, 0, -32768, 32767)),
    (aten.fake_quantize_per_tensor_affine.tensor_qparams,
     lambda x: torch.fake_quantize_per_tensor_affine(
         x, torch.tensor(0.1), torch.tensor(3, dtype=I32), 0, 255)),
    (aten.fake_quantize_per_channel_affine.default,
     lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.to(I32), 1, -128, 127)),
    (aten.fake_quantize_per_tensor_affine_cachemask.default,
     lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, 0, 20)),
    (aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
     lambda x: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
         x, torch.tensor(0.1), torch.tensor(3, dtype=I32), x[0, 0:1] < 1e9, 0, 20)),
    (aten.fake_quantize_per_channel_affine_cachemask.default,
     lambda x: aten.fake_quantize_per_channel_affine_cachemask(
         x, SCALES, ZEROS.to(I32), 1, -5, 5)),
    (aten.fake_quantize_per_tensor_affine.tensor_qparams,
     lambda x: torch.fake_quantize_per_tensor_affine(
         x, torch.tensor([0.1]), torch.tensor([-2.7]), -128, 127)),
    (aten.fake_quantize_per_tensor_affine.tensor_qparams,
     lambda x: torch.fake_quantize_per_tensor_affine(
         x, torch.tensor(0.001), torch.tensor(30000), 0, 65535)),
    (aten.fake_quantize_per_channel_affine.default,
     lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS * 0.57, 1, -128, 127)),
    (aten.fake_quantize_per_channel_affine.default,
     lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.to(I32), 1, -8, 7)),
    (aten._fake_quantize_learnable_per_tensor_affine.default,
     lambda x: torch._fake_quantize_learnable_per_tensor_affine(
         x, torch.tensor([0.1]), torch.tensor([-2.6]), -128, 127, 1.0)),
    (aten._fake_quantize_learnable_per_tensor_affine.default,
     lambda x: torch._fake_quantize_learnable_per_tensor_affine(
         x, torch.tensor([0.1]), x[:1, 0] * 0 + 300.5, 0, 255, 1.0)),
    (aten._fake_quantize_learnable_per_channel_affine.default,
     lambda x: torch._fake_quantize_learnable_per_channel_affine(
         x, SCALES, ZEROS * 0.83, 1, -128, 127, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function"), FAKE)
def test_fake_quantization_matches_eager(target, function):
    check(function, *FLOATS, target=target)


def test_fake_quantization_is_a_pair_of_nodes():
    model = translate(export(FAKE[0][1], *FLOATS), 20)
    assert [node.op_type for node in model.graph] == ["QuantizeLinear", "DequantizeLinear"]


class Weighed(nn.Module):
    """A linear layer whose weight is quantized and comes back in every call."""

    def __init__(self, fake, zero):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(96, 64) * 0.3)
        self.register_buffer("scales", torch.rand(96) * 0.01 + 0.002)
        self.register_buffer("scale", torch.tensor([0.01]))
        dtype = I32 if isinstance(zero, int) else torch.float32
        self.register_buffer("zeros", torch.full((96,), zero, dtype=dtype))
        self.register_buffer("zero", torch.full((1,), zero, dtype=dtype))
        self.fake = fake

    def forward(self, x):
        return F.linear(x, self.fake(self, self.weight))


def whole(low, high):
    return lambda m, w: torch.fake_quantize_per_tensor_affine(w, m.scale, m.zero, low, high)


def rows(low, high):
    return lambda m, w: torch.fake_quantize_per_channel_affine(w, m.scales, m.zeros, 0, low, high)


WEIGHTS = {
    "all": (whole(-128, 127), 0),
    "unsigned": (whole(0, 255), 128),
    "seven bits": (whole(0, 127), 64),
    "float zero": (whole(-128, 127), -1.6),
    "rows": (rows(-128, 127), 3),
    "four bits": (rows(-8, 7), 0),
    "learned": (
        lambda m, w: torch._fake_quantize_learnable_per_tensor_affine(
            w, m.scale, m.zero, -128, 127, 1.0
        ),
        0.4,
    ),
    "learned rows": (
        lambda m, w: torch._fake_quantize_learnable_per_channel_affine(
            w, m.scales, m.zeros, 0, -128, 127, 1.0
        ),
        -2.4,
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("leading", [(), (3,)])
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_stored_quantized(name, leading):
    """Inputs of several sizes, as onnxruntime rounds those of a fused product to eight bits."""
    model = Weighed(*WEIGHTS[name]).eval()
    with torch.no_grad(), tf.observe(model) as seen:
        model(torch.randn(2, *leading, 64)), model(torch.randn(5, *leading, 64))
    program = tf.export(model, seen)
    assert program.report.ok
    (weight,) = (v for v in program.model.graph.initializers.values() if v.shape == [96, 64])
    assert weight.dtype in (ir.DataType.INT8, ir.DataType.UINT8)
    assert weight.name == "weight.quantized"
    for size in (1, 9):
        x = torch.randn(size, *leading, 64)
        torch.testing.assert_close(program(x), model(x), atol=1e-4, rtol=1e-5)


def test_a_weight_on_a_tie_falls_to_the_side_that_pytorch_takes():
    scale, weight = torch.tensor([0.013]), torch.arange(-128, 128) * 0.0065

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", weight)
            self.register_buffer("scale", scale)
            self.register_buffer("zero", torch.zeros(1, dtype=I32))

        def forward(self, x):
            return x + torch.fake_quantize_per_tensor_affine(
                self.weight, self.scale, self.zero, -128, 127
            )

    model = check(Model(), (torch.zeros(2, 256),), (torch.zeros(3, 256),))
    stored = torch.tensor(model.graph.initializers["weight.quantized"].const_value.numpy())
    assert stored.tolist() == (Model()(torch.zeros(256)) / scale).round().tolist()
    assert (stored != (weight / scale).round()).any(), "no tie falls to the other side"


@pytest.mark.parametrize("leading", [(), (3,)])
def test_activations_in_training_are_traced(leading):
    """The scale and zero point are buffers, as a FakeQuantize has them."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(0.02))
            self.register_buffer("zero", torch.tensor(7, dtype=I32))
            self.linear = nn.Linear(64, 3)

        def forward(self, x):
            return self.linear(
                torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 255)
            )

    torch.manual_seed(0)
    model = Model().eval()
    program = tf.to_onnx(model, (torch.randn(2, *leading, 64),), dynamic_shapes=({0: "batch"},))
    names = [node.op_type for node in program.model.graph]
    assert names[:2] == ["QuantizeLinear", "DequantizeLinear"]
    for size in (1, 9):
        x = torch.randn(size, *leading, 64) * 3
        torch.testing.assert_close(program(x), model(x), atol=1e-5, rtol=1e-5)
