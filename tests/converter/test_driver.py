"""What every lowering is spared: dtypes, shapes, complex numbers, sizes, bodies."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.driver import handled
from torchferry.converter.lowering import lowers
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
OPS = torch.library.Library("ferrydriver", "DEF")
for _name in ("half", "flat", "raises", "two"):
    OPS.define(f"{_name}(Tensor x) -> Tensor")
OPS.impl("half", lambda x: x.half(), "CompositeExplicitAutograd")
for _name in ("flat", "raises", "two"):
    OPS.impl(_name, lambda x: x.clone(), "CompositeExplicitAutograd")
ops = torch.ops.ferrydriver
lowers(ops.half.default)(lambda b, x: b.Identity(x))
lowers(ops.flat.default)(lambda b, x: b.Reshape(x, [6]))
lowers(ops.two.default)(lambda b, x: (x, x))


@lowers(ops.raises.default)
def raises(b, x):
    raise KeyError("no such thing")


X = [(torch.randn(2, 3),), (torch.randn(2, 3),)]


def test_a_result_of_another_dtype_is_cast():
    check(ops.half, *X)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (ops.flat, r"ferrydriver.flat.default \(flat\) to ONNX: its shape would be \[6\], and"),
        (ops.raises, r"ferrydriver.raises.default \(raises\) to ONNX: 'no such thing'"),
        (ops.two, r"2 values where one is returned"),
    ],
)
def test_a_wrong_lowering_is_told_with_inputs_module_and_line(operator, message):
    with pytest.raises(LoweringFailed, match=message) as caught:
        translate(export(operator, *X), 20)
    text = str(caught.value)
    assert "  inputs  tensors_0: float32[2, 3]" in text
    assert "  module  the model (Call)" in text
    assert f"  source  {caught.value.source_line}" in text
    assert "op_case.py:" in caught.value.source_line


def test_a_complex_tensor_is_never_given_to_a_real_lowering():
    program = export(lambda x: ops.flat(torch.complex(x, x)), *X)
    with pytest.raises(Exception, match=r"ferrydriver\.flat\.default"):
        translate(program, 20)


def test_a_size_among_the_operands_is_a_number():
    sets = [(torch.ones(3, dtype=torch.int32),), (torch.ones(5, dtype=torch.int32),)]
    check(lambda x: x * x.shape[0], *sets)
    check(lambda x: x / x.shape[0], *sets)


@pytest.mark.parametrize("target", [aten.sym_size.int, aten._assert_scalar.default])
def test_what_the_driver_does_itself(target):
    assert handled(target)
    assert not handled(aten.add.Tensor)
