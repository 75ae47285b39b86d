"""Powers against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)
FLOATS = [(torch.rand(n, 3, generator=G) * 3 + 0.1,) for n in (2, 4, 1, 0)]
INTS = [(torch.randint(-5, 6, (n, 3), generator=G),) for n in (2, 4, 1, 0)]
NARROW = [(x.to(torch.int32),) for (x,) in INTS]
BYTES = [(x.abs().to(torch.uint8),) for (x,) in INTS]
PAIRS = [(x, torch.tensor([0.5, -2.0, 3.0])) for (x,) in FLOATS]
WHOLE = [(x, torch.tensor([0, 1, 20])) for (x,) in INTS]

CASES = [
    *(
        (aten.pow.Tensor_Scalar, lambda x, e=e: x**e, FLOATS)
        for e in (0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 2.5)
    ),
    *(
        (aten.pow.Tensor_Scalar, lambda x, e=e: x**e, s)
        for e in (0, 1, 2, 5, 0.5)
        for s in (INTS, NARROW)
    ),
    *((aten.pow.Tensor_Scalar, lambda x, e=e: x**e, BYTES) for e in (2, 5)),
    (aten.pow.Tensor_Scalar, lambda x: x**2, [(torch.rand(3).half(),)]),
    (aten.pow.Tensor_Tensor, torch.pow, PAIRS),
    (aten.pow.Tensor_Tensor, torch.pow, WHOLE),
    (
        aten.pow.Tensor_Tensor,
        torch.pow,
        [(torch.tensor([3, 2, -1, 0, 0, -1, 7]), torch.tensor([39, 62, 3, 0, 5, -2, -1]))],
    ),
    (aten.pow.Scalar, lambda x: 2**x, FLOATS),
    (aten.pow.Scalar, lambda x: 2.5**x, INTS),
    (aten.float_power.Tensor_Scalar, lambda x: torch.float_power(x, 2), INTS),
    (aten.float_power.Tensor_Tensor, torch.float_power, PAIRS),
    (aten.square.default, torch.square, FLOATS),
    (aten.square.default, torch.square, INTS),
    (aten.exp2.default, torch.exp2, FLOATS),
    (aten.exp2.default, torch.exp2, INTS),
    (aten.ldexp.Tensor, torch.ldexp, WHOLE),
    (aten.ldexp.Tensor, lambda x, y: torch.ldexp(x, y.int()), PAIRS),
    (aten.frexp.Tensor, torch.frexp, FLOATS),
    (
        aten.frexp.Tensor,
        torch.frexp,
        [(torch.tensor([0.0, -0.0, 1.0, 0.5, -8.0, 1e-30, 3e30, 0.99999994, 1.0000001]),)],
    ),
]


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target)


def test_a_square_is_what_fusions_look_for():
    model = check(lambda x: x**2, *FLOATS)
    assert [node.op_type for node in model.graph] == ["Pow"]
