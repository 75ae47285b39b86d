"""as_strided."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
ROWS = [(torch.randn(4, 6),), (torch.randn(7, 6),)]

CASES = [
    (aten.as_strided.default, lambda x: x.as_strided((3, 2), (2, 1)), ROWS),
    (aten.as_strided.default, lambda x: x.as_strided((2, 3, 2), (0, 1, 5), 4), ROWS),
    (aten.as_strided.default, lambda x: x.as_strided((), (), 5), ROWS),
    (aten.as_strided.default, lambda x: x.as_strided((0, 2), (1, 1)), ROWS),
    (aten.as_strided.default, lambda x: x.as_strided((x.shape[0], 2), (6, 1)), ROWS),
    (aten.as_strided_scatter.default,
     lambda x: torch.as_strided_scatter(x, torch.ones(2, 3), (2, 3), (7, 2), 1), ROWS),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


def test_memory_in_another_order_is_refused():
    program = export(lambda x: x.t().as_strided((3, 2), (2, 1)), *ROWS)
    with pytest.raises(LoweringFailed, match="contiguous"):
        translate(program, 20)


def test_complex_numbers():
    def function(x):
        z = torch.complex(x, -x)
        piece = torch.ones(2, 3, dtype=z.dtype)
        return z.as_strided((3, 2), (2, 1), 4), torch.as_strided_scatter(z, piece, (2, 3), (7, 2))

    check(function, *ROWS, exact=True)
