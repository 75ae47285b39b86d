"""Activation functions against eager."""

import pytest
import torch
import torch.nn.functional as F
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
G = torch.Generator().manual_seed(0)
FLOATS = [(torch.randn(n, 4, generator=G) * 3,) for n in (2, 5, 1, 0)]
DOUBLES = [(x.double(),) for (x,) in FLOATS]
HALVES = [(x.half(),) for (x,) in FLOATS]
ODD = [(torch.tensor([NAN, INF, -INF, 0.0, -0.0, 25.0, -25.0, 1e-6]),)]
EDGES = [(torch.tensor([NAN, 0.0, -0.0, 25.0, -25.0, 1e-6, 3.0, -3.0, 0.5, -0.5, 6.0]),)]
INTS = [((x * 3).long(),) for (x,) in FLOATS]
ALL = (FLOATS, DOUBLES, HALVES, EDGES)

ROWS = [
    (aten.relu.default, F.relu),
    (aten.relu6.default, F.relu6),
    (aten.hardtanh.default, lambda x: F.hardtanh(x, -2, 0.5)),
    (aten.silu.default, F.silu),
    (aten.threshold.default, lambda x: F.threshold(x, 0.5, 7.0)),
    (aten.mish.default, F.mish),
    (aten.leaky_relu.default, F.leaky_relu),
    (aten.leaky_relu.default, lambda x: F.leaky_relu(x, 0.3)),
    (aten.rrelu.default, F.rrelu),
    (aten.elu.default, F.elu),
    (aten.elu.default, lambda x: F.elu(x, 0.7)),
    (aten.selu.default, F.selu),
    (aten.celu.default, F.celu),
    (aten.celu.default, lambda x: F.celu(x, 1.7)),
    (aten.gelu.default, F.gelu),
    (aten.gelu.default, lambda x: F.gelu(x, approximate="tanh")),
    (aten.hardsigmoid.default, F.hardsigmoid),
    (aten.hardswish.default, F.hardswish),
    (aten.softplus.default, F.softplus),
    (aten.softplus.default, lambda x: F.softplus(x, 2, 3)),
    (aten.log_sigmoid.default, F.logsigmoid),
    (aten.hardshrink.default, F.hardshrink),
    (aten.softshrink.default, F.softshrink),
    (aten.softshrink.default, lambda x: F.softshrink(x, 2)),
    (None, F.softsign),
    (None, F.tanhshrink),
]
ENDS = torch.tensor(
    [[1.0, float("nan"), 2.0], [1.0, float("inf"), 2.0], [1.0, -float("inf"), 2.0],
     [-float("inf")] * 3, [1e30, 1.0, 2.0]]
)  # fmt: skip
CASES = [
    *((target, function, s) for target, function in ROWS for s in ALL),
    *((target, function, ODD) for target, function in ROWS[:1] + ROWS[18:19]),
    (aten.relu.default, F.relu, INTS),
    (aten.relu.default, F.relu, [(x.short(),) for (x,) in INTS]),
    (aten.hardtanh.default, lambda x: F.hardtanh(x, -2, 2), INTS),
    (aten.threshold.default, lambda x: F.threshold(x, 1, 5), INTS),
    (aten.glu.default, F.glu, FLOATS),
    (aten.glu.default, F.glu, HALVES),
    (aten.glu.default, lambda x: F.glu(x, 0), [(torch.randn(4, n),) for n in (3, 1, 0)]),
    *((aten.softmax.int, lambda x, d=d: x.softmax(d), s) for d in (0, -1) for s in ALL[:3]),
    *(
        (aten.log_softmax.int, lambda x, d=d: x.log_softmax(d), s)
        for d in (0, -1)
        for s in ALL[:3]
    ),
    (aten.softmax.int, lambda x: x.softmax(-1, dtype=torch.float32), INTS),
    (aten.softmax.int, lambda x: x.softmax(-1, dtype=torch.float64), FLOATS),
    (aten.softmax.int, lambda x: x.softmax(0), [(torch.tensor(2.0),)]),
    (aten.log_softmax.int, lambda x: x.log_softmax(0), [(torch.tensor(2.0),)]),
    (aten.log_softmax.int, lambda x: x.log_softmax(-1), [(ENDS,), (ENDS[:1],)]),
    (aten.log_softmax.int, lambda x: x.log_softmax(-1), [(ENDS.double(),), (ENDS.double()[:1],)]),
    (None, lambda x: F.softmin(x, 1), FLOATS),
    (None, lambda x: torch.special.softmax(x, 1), FLOATS),
]


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4), (2, 3, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("several", [False, True])
def test_prelu_slopes(shape, dtype, several):
    """One slope, or one for each channel."""
    count = shape[1] if several and len(shape) > 1 else 1
    x, weight = torch.randn(shape, dtype=dtype), torch.rand(count, dtype=dtype)
    check(F.prelu, (x, weight), target=aten.prelu.default)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_each_opset(opset, approximate):
    model = check(lambda x: F.gelu(x, approximate=approximate), *FLOATS, opset=opset)
    assert (len(model.graph) == 1) == (opset == 20)


@pytest.mark.parametrize(("function", "nodes"), [(F.silu, 2), (F.softplus, 1), (F.hardswish, 2)])
def test_few_nodes(function, nodes):
    assert len(check(function, *FLOATS).graph) == nodes
