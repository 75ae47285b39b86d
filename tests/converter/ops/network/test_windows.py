"""Windows gathered from a tensor, which other lowerings compute with."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from op_case import run

from torchferry.converter.block import Block
from torchferry.converter.ops.network.windows import lowest, per_axis, windows


@pytest.mark.parametrize("length", [9, "n"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (2, 3, 1), (3, 2, 2)])
def test_windows_are_those_of_unfold(length, kernel, stride, dilation):
    b = Block(20)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 3, length]))
    seen = windows(b, x, [kernel], [stride], [dilation])
    graph = ir.Graph([x], [seen], nodes=b.nodes, opset_imports={"": 20}, name="g",
                     initializers=list(b.constants.values.values()))  # fmt: skip
    data = torch.randn(2, 3, 9)
    (got,) = run(ir.Model(graph, ir_version=10), [data])
    reach = dilation * (kernel - 1) + 1
    expected = data.unfold(2, reach, stride)[..., ::dilation]
    assert torch.equal(got, expected)


def test_lowest():
    assert lowest(ir.DataType.INT8) == -128
    assert lowest(ir.DataType.FLOAT) == -np.inf


def test_one_number_stands_for_all_axes():
    assert per_axis(3, 2) == per_axis([3], 2) == [3, 3]
    with pytest.raises(ValueError, match="its stride depends on the inputs' sizes"):
        per_axis([ir.Value()], 1, "stride")
