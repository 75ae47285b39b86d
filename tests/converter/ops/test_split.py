"""One tensor as several."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
COLUMNS = [(torch.randn(2, 7),), (torch.randn(5, 7),), (torch.randn(0, 7),)]
ROWS = [(torch.randn(4, 6, 2),), (torch.randn(8, 6, 2),), (torch.randn(2, 6, 2),)]
PLACES = torch.tensor([2, -1, 9])

CASES = [
    (aten.split.Tensor, lambda x: x.split(3, 1), COLUMNS),
    (aten.split.Tensor, lambda x: x.split(7, -1), COLUMNS),
    (aten.split.Tensor, lambda x: x[:, :0].split(3, 1), COLUMNS),
    (aten.split_with_sizes.default, lambda x: x.split([3, 0, 4], 1), COLUMNS),
    (aten.split_with_sizes.default, lambda x: x.split([1, x.shape[0] - 1]), COLUMNS[:2]),
    (aten.unsafe_split.Tensor, lambda x: x.unsafe_split(3, 1), COLUMNS),
    (
        aten.unsafe_split_with_sizes.default,
        lambda x: x.unsafe_split_with_sizes([3, 4], 1),
        COLUMNS,
    ),
    (aten.chunk.default, lambda x: x.chunk(3, 1), COLUMNS),
    (aten.chunk.default, lambda x: x.chunk(1, 0), COLUMNS),
    (aten.chunk.default, lambda x: x[:, :0].chunk(2, 1), COLUMNS),
    (aten.unsafe_chunk.default, lambda x: x.unsafe_chunk(2, 1), COLUMNS),
    (aten.tensor_split.sections, lambda x: x.tensor_split(4, 1), COLUMNS),
    (aten.tensor_split.sections, lambda x: x.tensor_split(3), ROWS),
    (aten.tensor_split.indices, lambda x: x.tensor_split([1, -2, 9], 1), COLUMNS),
    (aten.tensor_split.indices, lambda x: x.tensor_split([1, 3]), COLUMNS),
    (aten.tensor_split.tensor_indices_or_sections, lambda x: x.tensor_split(PLACES, 1), COLUMNS),
    (aten.hsplit.int, lambda x: x.hsplit(2), ROWS),
    (aten.hsplit.array, lambda x: x.hsplit([1, 3]), COLUMNS),
    (aten.hsplit.array, lambda x: x.flatten().hsplit([1, 3]), COLUMNS),
    (aten.vsplit.int, lambda x: x.vsplit(2), ROWS),
    (aten.vsplit.array, lambda x: x.vsplit([1]), COLUMNS),
    (aten.dsplit.int, lambda x: x.dsplit(2), ROWS),
    (aten.dsplit.array, lambda x: x.dsplit([1]), ROWS),
    (aten.unbind.int, lambda x: x.unbind(-1), ROWS),
    (aten.unbind.int, lambda x: x.unbind(1), COLUMNS),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        return *x.split(2, 1), *x.chunk(2, 1), *x.unbind(1)

    check(function, *[((x > 0).to(dtype),) for (x,) in ROWS])
