"""A linear layer and its cross entropy in chunks, against eager."""

import pytest
import torch
from op_case import check
from torch import nn

if not hasattr(nn.functional, "linear_cross_entropy"):
    pytest.skip("this torch has no linear_cross_entropy", allow_module_level=True)

f = nn.functional
CHUNKS = nn.LinearCrossEntropyOptions(batch_chunk_size=3, allow_retain_graph=True)
SETS = [(torch.randn(rows, 5), torch.arange(rows) % 4) for rows in (6, 9)]
WEIGHT, BIAS, CLASSES = torch.randn(4, 5), torch.randn(4), torch.rand(4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "options", [{}, {"linear_bias": BIAS, "weight": CLASSES}, {"ignore_index": 2}]
)
def test_matches_eager(reduction, options):
    def function(x, target):
        return f.linear_cross_entropy(
            x, WEIGHT, target, reduction=reduction, options=CHUNKS, **options
        )

    overload = "_linear_cross_entropy_batch_chunked"
    if reduction == "none":
        overload += "_no_reduction"
    f.linear_cross_entropy(*SETS[0][:1], WEIGHT, SETS[0][1], options=CHUNKS)  # defines them
    packet = getattr(torch.ops.torch_nn, overload)
    for one in SETS:  # torch 2.13 exports chunks of a known number of rows only
        check(function, one, target=packet.default)
