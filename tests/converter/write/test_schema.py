import onnx_ir as ir
import pytest

from torchferry.converter.write.schema import operator

FLOAT, INT = ir.DataType.FLOAT, ir.DataType.INT64


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("Add", [INT, INT], INT),
        ("Equal", [FLOAT, FLOAT], ir.DataType.BOOL),
        ("Where", [ir.DataType.BOOL, FLOAT, FLOAT], FLOAT),
        ("Gather", [FLOAT, INT], FLOAT),
        ("Concat", [None, FLOAT], FLOAT),
        ("NonZero", [FLOAT], INT),
        ("Cast", [FLOAT], None),
    ],
)
def test_the_dtype_of_a_result(name, inputs, output):
    assert operator(name, 20).output_dtype(0, inputs) == output


def test_inputs_beyond_the_last():
    assert operator("Concat", 20).input_type(5) == "T"
    assert operator("Relu", 20).input_type(1) is None
    assert operator("Relu", 20).output_dtype(1, [FLOAT]) is None


def test_attributes_that_are_floats():
    assert operator("Gemm", 20).floats == {"alpha", "beta"}
    assert "transB" in operator("Gemm", 20).attributes


def test_an_operator_that_is_newer():
    assert operator("RMSNormalization", 23)
    with pytest.raises(ValueError, match="opset 22 has no operator RMSNormalization"):
        operator("RMSNormalization", 22)
