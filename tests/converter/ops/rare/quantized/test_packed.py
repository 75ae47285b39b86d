"""Weights of four bits against eager, and how many bytes they take in the file."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.ops.rare.quantized.packed import unpacked
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed
from torchferry.graph import io

aten = torch.ops.aten
INPUTS = [(torch.randn(rows, 128),) for rows in (3, 7, 1)]


def codes(rows, columns):
    return torch.randint(0, 16, (rows, columns), dtype=torch.int32)


class Packed(torch.nn.Module):
    """A linear layer as torch's own int4 flow leaves it."""

    def __init__(self, rows=64, columns=128, group=32, *, zeros=True, dtype=torch.float32):
        super().__init__()
        weight = aten._convert_weight_to_int4pack_for_cpu(codes(rows, columns), 2)
        scales = torch.randn(columns // group, rows, 2) * torch.tensor([0.05, 0.2 * zeros])
        self.group = group
        self.register_buffer("weight", weight)
        self.register_buffer("scales_and_zeros", scales.to(dtype))

    def forward(self, x):
        x = x.to(self.scales_and_zeros.dtype)
        return aten._weight_int4pack_mm_for_cpu(x, self.weight, self.group, self.scales_and_zeros)


def operators(model):
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("rows", [16, 32, 48, 64, 80, 208])
def test_what_torch_packed_is_unpacked(rows):
    given = codes(rows, 96)
    packed = aten._convert_weight_to_int4pack_for_cpu(given, 2)
    torch.testing.assert_close(unpacked(packed), given.to(torch.uint8), rtol=0, atol=0)


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("zeros", [True, False])
def test_product(opset, zeros):
    model = check(
        Packed(zeros=zeros), *INPUTS, target=aten._weight_int4pack_mm_for_cpu.default,
        opset=opset, tolerance=1e-4,
    )  # fmt: skip
    made = operators(model)
    assert "MatMulNBits" in made
    assert ("ReduceSum" in made) == zeros


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_product_of_halves(dtype):
    # eager rounds the weights that it unpacks
    check(Packed(dtype=dtype), *INPUTS, tolerance=5e-2)


@pytest.mark.parametrize("group", [64, 128, 256])
def test_groups(group):
    inputs = [(torch.randn(rows, 512),) for rows in (2, 5, 0)]
    check(Packed(16, 512, group), *inputs, tolerance=1e-4)


def test_a_weight_that_is_packed_in_forward():
    weight, scales = codes(32, 128), torch.randn(4, 32, 2) * 0.1

    class Packing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", weight)
            self.register_buffer("scales", scales)

        def forward(self, x):
            packed = aten._convert_weight_to_int4pack_for_cpu(self.codes, 2)
            return aten._weight_int4pack_mm_for_cpu(x, packed, 32, self.scales)

    check(Packing(), *INPUTS, tolerance=1e-4)


def test_the_file_has_half_a_byte_for_each_weight(tmp_path):
    module = Packed(256, 512, 64)
    program = export(module, (torch.randn(2, 512),))
    io.save(translate(program, 20), tmp_path / "model.onnx")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    weights, scales = 256 * 512 // 2, 8 * 256 * 2 * 4
    assert weights + scales <= size < weights + scales + 10_000


def refusal(function, *sets, opset=20):
    with pytest.raises(LoweringFailed) as caught:
        translate(export(function, *sets), opset)
    return str(caught.value)


def test_refusals():
    packed = aten._convert_weight_to_int4pack_for_cpu(codes(16, 128), 2)
    scales = torch.randn(4, 16, 2)

    def given(x, weight):
        return aten._weight_int4pack_mm_for_cpu(x, weight, 32, scales)

    assert "no parameter or buffer" in refusal(given, (INPUTS[0][0], packed))

    class Meta(Packed):
        def __init__(self):
            super().__init__()
            self.to("meta")

    with torch.device("meta"):
        inputs = (torch.randn(3, 128),)
    assert "no data to be repacked" in refusal(Meta(), inputs)


class Dynamic(torch.nn.Module):
    """Inputs rounded to bytes row by row, weights of four bits."""

    def __init__(self, block, bias):
        super().__init__()
        weight = torch.randint(0, 256, (48, 192), dtype=torch.uint8)
        scales = torch.rand(48, 384 // block) * 0.1
        constant = torch.randn(48) if bias else None
        self.block = block
        packed = aten._dyn_quant_pack_4bit_weight(weight, scales, constant, block, 384, 48)
        self.register_buffer("packed", packed)

    def forward(self, x):
        return aten._dyn_quant_matmul_4bit(x, self.packed, self.block, 384, 48)


@pytest.mark.parametrize("block", [32, 96, 384])
@pytest.mark.parametrize("bias", [True, False])
def test_rounded_inputs(block, bias):
    wide = torch.randn(3, 384)
    sets = [(wide,), (torch.zeros(2, 384),), (torch.rand(1, 384) + 1,), (-wide.abs() * 9,)]
    check(
        Dynamic(block, bias), *sets, target=aten._dyn_quant_matmul_4bit.default, tolerance=1e-4
    )  # fmt: skip


def test_rounded_inputs_and_a_weight_packed_in_forward():
    weight = torch.randint(0, 256, (48, 64), dtype=torch.uint8)

    class Packing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", weight)
            self.register_buffer("scales", torch.rand(48, 1))

        def forward(self, x):
            packed = aten._dyn_quant_pack_4bit_weight(self.weight, self.scales, None, 128, 128, 48)
            return aten._dyn_quant_matmul_4bit(x, packed, 128, 128, 48)

    check(Packing(), *INPUTS, tolerance=1e-4)
