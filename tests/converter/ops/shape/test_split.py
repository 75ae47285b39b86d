"""One tensor as several."""

import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from op_case import Call, check, run
from torch.utils import _pytree as pytree

from torchferry.converter.translate import translate

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


def growing(function, *sets):
    """A program whose first axis is dynamic as far as the number of parts allows."""
    module = Call(function)
    shapes = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(module, sets[0], dynamic_shapes=(shapes,), strict=False)
    assert not isinstance(program.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0], int)
    return translate(program, 20)


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (lambda x: x.split(4), (7, 5, 8)),
        (lambda x: x.split(9), (7, 8, 9)),
        (lambda x: (x + 1j).split(4)[1].real, (7, 5, 8)),
    ],
)
def test_parts_of_a_dynamic_axis(function, rows):
    model = growing(function, *[(torch.randn(n, 3),) for n in rows])
    for n in rows:
        x = torch.randn(n, 3)
        torch.testing.assert_close(tuple(run(model, [x])), tuple(pytree.tree_leaves(function(x))))


def test_another_number_of_parts_is_an_error():
    model = growing(lambda x: x.split(4), (torch.randn(7, 3),))
    for rows in (4, 9):
        with pytest.raises((Fail, InvalidArgument), match="Split"):
            run(model, [torch.randn(rows, 3)])


def shared(x):
    """What writes to a chunk makes of chunk: a split by a size that is computed."""
    y = x.clone()
    first, *_, last = y.chunk(2)
    first.add_(last)
    return y, last


@pytest.mark.parametrize(
    ("function", "rows"),
    [(lambda x: x.split(x.shape[0] - 1), (7, 3, 2)), (shared, (6, 8, 2, 0))],
)
def test_parts_whose_size_is_dynamic(function, rows):
    model = growing(function, (torch.randn(rows[0], 3),))
    for n in rows:
        x = torch.randn(n, 3)
        torch.testing.assert_close(tuple(run(model, [x])), tuple(function(x)))


def test_a_computed_size_that_gives_other_parts_is_an_error():
    model = growing(lambda x: x.split(x.shape[0] // 2), (torch.randn(6, 3),))
    with pytest.raises((Fail, InvalidArgument), match="Split"):
        run(model, [torch.randn(7, 3)])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        return *x.split(2, 1), *x.chunk(2, 1), *x.unbind(1)

    check(function, *[((x > 0).to(dtype),) for (x,) in ROWS])
