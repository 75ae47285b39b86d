"""What every lowering is spared: dtypes, shapes, complex numbers, sizes, bodies."""

import pytest
import torch
from op_case import check, export, run

from torchferry.converter import driver
from torchferry.converter.driver import handled
from torchferry.converter.lowering import Lowering, lowers
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


@pytest.fixture
def lowered(monkeypatch):
    """``lowered(target, write)``: as if that were our lowering."""
    ours = driver.find_lowering

    def become(target, write):
        lowering = Lowering(write, None, None)
        monkeypatch.setattr(
            driver,
            "find_lowering",
            lambda found, **kind: lowering if found is target else ours(found, **kind),
        )

    return become


def test_one_row_for_rows_is_told_by_the_size_of_the_export(lowered):
    lowered(aten.sin.default, lambda b, x: b.ReduceMax(x, [0]))
    program = export(torch.sin, (torch.randn(2, 3),), (torch.randn(4, 3),))
    with pytest.raises(
        LoweringFailed, match=r"shape would be \[1,3\], and torch has \['s\d+', 3\]"
    ):
        translate(program, 20)
    (got,) = run(translate(export(torch.sin, (torch.ones(1, 3),), (torch.ones(2, 3),)), 20), X[0])
    assert got.shape == (1, 3)  # where the export had one row, nothing is known


def test_an_argument_returned_as_it_is_has_to_fit_too(lowered):
    lowered(aten.sum.dim_IntList, lambda b, x, dim, keepdim=False, dtype=None: x)
    with pytest.raises(LoweringFailed, match=r"shape would be \[2,3\], and torch has \[2\]"):
        translate(export(lambda x: x.sum(1), X[0]), 20)


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
