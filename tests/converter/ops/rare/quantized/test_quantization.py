"""Quantized tensors against eager, at sizes other than those exported."""

import onnx_ir as ir
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from op_case import check

aten = torch.ops.aten
Q = torch.ops.quantized_decomposed
# not near a tie of the scales below, where dividing and multiplying may part
STEPS = torch.arange(-12, 12).reshape(4, 6) * 0.23 + 0.01
FLOATS = (STEPS,), (STEPS[:1] * 1.7,), (STEPS.repeat(2, 1) * 40,)
BYTES = [(STEPS.mul(9).to(torch.int8),), (STEPS[:1].to(torch.int8),)]
UBYTES = [(s.add(128).to(torch.uint8),) for (s,) in BYTES]
INTS = [(s.to(torch.int32) * 1000,) for (s,) in BYTES]
SCALES = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
ZEROS = torch.tensor([0, 1, 2, -3, -4, 5])
I8, U8, I16, I32 = torch.int8, torch.uint8, torch.int16, torch.int32


CASES = [
    (Q.quantize_per_tensor.default,
     lambda x: Q.quantize_per_tensor(x, 0.1, 3, -128, 127, I8), FLOATS),
    (Q.quantize_per_tensor.default,
     lambda x: Q.quantize_per_tensor(x, 0.1, 30, 0, 127, U8), FLOATS),
    (Q.quantize_per_tensor.default,
     lambda x: Q.quantize_per_tensor(x, 0.1, 3, -1000, 1000, I16), FLOATS),
    (Q.quantize_per_tensor.default,
     lambda x: Q.quantize_per_tensor(x.half(), 0.1, 3, 0, 255, U8), FLOATS[:2]),
    (Q.quantize_per_tensor.tensor,
     lambda x: Q.quantize_per_tensor(x, torch.tensor(0.1), torch.tensor(3), 0, 255, U8), FLOATS),
    (Q.quantize_per_tensor.tensor,
     lambda x: Q.quantize_per_tensor(x, torch.tensor([0.1]), torch.tensor([3]), 0, 255, I32),
     FLOATS),
    (Q.quantize_per_tensor.tensor2,
     lambda x: Q.quantize_per_tensor(x, *map(torch.tensor, (0.1, 3, 1, 250)), U8), FLOATS),
    (Q.quantize_per_channel.default,
     lambda x: Q.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, I8), FLOATS),
    (Q.quantize_per_channel.default,
     lambda x: Q.quantize_per_channel(x, SCALES, ZEROS, 1, -9, 9, I16), FLOATS),
    (Q.dequantize_per_tensor.default,
     lambda x: Q.dequantize_per_tensor(x, 0.1, 3, -128, 127, I8), BYTES),
    (Q.dequantize_per_tensor.default,
     lambda x: Q.dequantize_per_tensor(x, 0.1, 3, 0, 255, U8, out_dtype=torch.float16), UBYTES),
    (Q.dequantize_per_tensor.default,
     lambda x: Q.dequantize_per_tensor(x, 0.1, 3, -(2**31), 2**31 - 1, I32), INTS),
    (Q.dequantize_per_tensor.tensor,
     lambda x: Q.dequantize_per_tensor(x, torch.tensor(0.1), torch.tensor(3), 0, 255, U8), UBYTES),
    (Q.dequantize_per_tensor.tensor2,
     lambda x: Q.dequantize_per_tensor(x, *map(torch.tensor, (0.1, 3, -128, 127)), I8), BYTES),
    (Q.dequantize_per_channel.default,
     lambda x: Q.dequantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, I8), BYTES),
    (Q.dequantize_per_channel.default,
     lambda x: Q.dequantize_per_channel(x, SCALES, None, 1, -128, 127, I8), BYTES),
    (Q.dequantize_per_channel.default,
     lambda x: Q.dequantize_per_channel(x, SCALES, ZEROS, 1, 0, 9, I32), INTS),
    (Q.dequantize_per_channel_group.default,
     lambda x: Q.dequantize_per_channel_group(
         x, SCALES[:2].expand(x.shape[0], 2), ZEROS[:2].expand(x.shape[0], 2), -128, 127, I8, 3,
         torch.float32), BYTES),
    (Q.quantize_per_token.default,
     lambda x: Q.quantize_per_token(x, x.abs().amax(1, True) / 9, torch.zeros(x.shape[0], 1),
                                    -128, 127, I8), FLOATS),
    (Q.dequantize_per_token.default,
     lambda x: Q.dequantize_per_token(
         x.to(I8), *Q.choose_qparams_per_token_asymmetric(x, I8), -128, 127, I8, torch.float32),
     FLOATS),
    (Q.choose_qparams.tensor, lambda x: Q.choose_qparams(x, -128, 127, 1e-5, I8), FLOATS),
    (Q.choose_qparams.tensor, lambda x: Q.choose_qparams(x.abs() + 1, 0, 255, 1e-5, U8), FLOATS),
    (Q.choose_qparams_symmetric.tensor,
     lambda x: Q.choose_qparams_symmetric(x, -127, 127, 1e-5, I8), FLOATS),
    (Q.choose_qparams_per_token_asymmetric.default,
     lambda x: Q.choose_qparams_per_token_asymmetric(x, I8), FLOATS),
    (aten._weight_int8pack_mm.default,
     lambda x: aten._weight_int8pack_mm(x, torch.arange(-15, 15).reshape(5, 6).to(I8), SCALES[:5]),
     FLOATS),
    (aten._int_mm.default, lambda x: torch._int_mm(x, x[:1].t().repeat(1, 5)), BYTES[:1]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


class Packed(torch.nn.Module):
    """A linear layer with a weight of bytes, as torch's own quantization flow leaves it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.arange(-15, 15).reshape(5, 6).to(I8))
        self.register_buffer("scales", SCALES[:5])
        self.register_buffer("zeros", torch.zeros(5, dtype=torch.int64))

    def forward(self, x):
        x = Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, 0.1, 3, -128, 127, I8), 0.1, 3, -128, 127, I8
        )
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, I8)
        return torch.nn.functional.linear(x, weight)


def test_a_weight_of_bytes_stays_one():
    model = check(Packed(), *FLOATS, tolerance=1e-4)
    weight = model.graph.initializers["weight"]
    assert (weight.dtype, list(weight.shape)) == (ir.DataType.INT8, [5, 6])
    names = [node.op_type for node in model.graph]
    assert names.count("DequantizeLinear") == 2
