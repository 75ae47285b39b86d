"""Which dtypes onnxruntime computes, and integers that are widened."""

import onnx_ir as ir
import pytest
import torch

from torchferry.converter.block import Block
from torchferry.converter.write.kernel import is_floating, is_integer, single, widened
from torchferry.graph.runtime import DOUBLE_COSINES
from versions import can


def value(dtype, shape=(2,)):
    return ir.Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape(shape))


def ops(b):
    return [node.op_type for node in b.nodes]


@pytest.mark.parametrize(
    ("op_type", "dtype", "nodes"),
    [
        ("Max", ir.DataType.FLOAT, ["Max"]),
        ("Max", ir.DataType.FLOAT16, ["Max"]),
        ("Max", ir.DataType.INT16, ["Cast", "Cast", "Max", "Cast"]),
        ("Less", ir.DataType.BOOL, ["Cast", "Cast", "Less"]),
        ("Add", ir.DataType.UINT8, ["Add"]),
        ("Pow", ir.DataType.UINT32, ["Cast", "Cast", "Pow", "Cast"]),
    ],
)
def test_casts_only_where_a_kernel_lacks(op_type, dtype, nodes):
    b = Block(20)
    result = widened(b, op_type, value(dtype), value(dtype))
    assert ops(b) == nodes
    assert result.dtype == (ir.DataType.BOOL if op_type == "Less" else dtype)


def test_the_condition_of_a_choice_stays():
    b = Block(20)
    widened(b, "Where", value(ir.DataType.BOOL), value(ir.DataType.INT16), 3)
    assert ops(b) == ["Cast", "Where", "Cast"]
    assert b.nodes[1].inputs[0].dtype == ir.DataType.BOOL


def test_float64_is_refused_where_nothing_is_wider():
    with pytest.raises(ValueError, match="no Erf for double: convert the model in float32"):
        widened(Block(20), "Erf", value(ir.DataType.DOUBLE))


def test_kernels_are_those_of_the_installed_onnxruntime():
    """A row that promises too much makes a model that does not load."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    from torchferry.converter.write.kernel import _KERNELS

    found = {}
    for kernel in get_all_opkernel_def():
        first, last = kernel.version_range
        if kernel.domain == "" and "CPU" in kernel.provider and first <= 20 <= last:
            types = next(iter(sorted(kernel.type_constraints.items())), ("", []))[1]
            if kernel.op_name == "Where":
                types = kernel.type_constraints["T"]
            found.setdefault(kernel.op_name, set()).update(types)
    names = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}
    for op_type, dtypes in _KERNELS.items():
        if op_type == "Mish":  # a function of others
            continue
        wanted = {f"tensor({names.get(d, d.name.lower())})" for d in dtypes}
        if op_type == "Cos" and not can(DOUBLE_COSINES):
            wanted.remove("tensor(double)")
        assert wanted <= found[op_type], op_type


def test_kinds_of_numbers():
    assert is_floating(value(ir.DataType.BFLOAT16))
    assert is_integer(value(ir.DataType.UINT8))
    assert not is_integer(value(ir.DataType.BOOL))
    assert not is_floating(value(ir.DataType.INT64))


@pytest.mark.parametrize(("dtype", "casts"), [(torch.float16, 1), (torch.float32, 0)])
def test_half_precision_is_computed_in_single(dtype, casts):
    b = Block(20)
    given = ir.DataType.FLOAT16 if dtype == torch.float16 else ir.DataType.FLOAT
    assert single(b, value(given)).dtype == ir.DataType.FLOAT
    assert len(b.nodes) == casts
