from __future__ import annotations

import operator

import pytest
import torch

from torchferry.sources.script_nodes import FUNCTIONS, call_operator

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("aten::add", (2, 3), 5),
        ("aten::add", (2, 3, 4), 14),
        ("aten::sub", (7, 3, 2), 1),
        ("aten::add", ([1], [2]), [1, 2]),
        ("aten::div", (7, 2), 3.5),
        ("aten::floordiv", (-7, 2), -4),
        ("aten::__range_length", (1, 8, 3), 3),
        ("aten::__derive_index", (2, 1, 3), 7),
        ("aten::slice", ([1, 2, 3, 4], 1, None, 2), [2, 4]),
        ("aten::__contains__", ([1, 2], 2), True),
        ("aten::format", ("{} of {}", 1, 2), "1 of 2"),
        ("aten::Int", (2.9,), 2),
        ("aten::Float", (2,), 2.0),
        ("aten::ceil", (2.1,), 3),
        ("prim::min", (3, 2), 2),
        ("prim::max", ([3, 2, 5],), 5),
        ("prim::rangelist", (2, 5), [2, 3, 4]),
        ("prim::DictConstruct", ("a", 1, "b", 2), {"a": 1, "b": 2}),
        ("prim::NumToTensor", (4,), 4),
    ],
)
def test_numbers_lists_and_texts(kind: str, values: tuple[object, ...], expected: object) -> None:
    result = call_operator(kind, None, values, FUNCTIONS[kind])
    assert result == expected
    assert type(result) is type(expected)


def test_an_operator_goes_first_if_an_argument_is_a_tensor() -> None:
    x = torch.arange(4.0)
    added = call_operator("aten::add", aten.add.Tensor, (x, 1, 2), operator.sub)
    assert added.tolist() == [2, 3, 4, 5]
    assert call_operator("aten::size", aten.size.int, (x, 0), FUNCTIONS["aten::size"]) == 4


def test_numbers_stand_for_types_and_formats() -> None:
    x = torch.ones(2)
    assert call_operator("aten::sum", aten.sum.default, (x, 7), None).dtype == torch.float64
    zeros = call_operator("aten::zeros", aten.zeros.default, ([2], 4, 0, "cpu", False), None)
    assert (zeros.dtype, zeros.shape) == (torch.int64, (2,))
    assert call_operator("prim::dtype", None, (x.half(),), FUNCTIONS["prim::dtype"]) == 5
    assert FUNCTIONS["aten::to"](x, 15).dtype == torch.bfloat16
    assert FUNCTIONS["aten::to"](x, "cpu", 7).dtype == torch.float64
    assert FUNCTIONS["aten::tensor"]([1, 2], 6).dtype == torch.float32


@pytest.mark.parametrize(("number", "dtype"), [(3, torch.int64), (1.5, torch.float32)])
def test_a_number_in_the_place_of_a_tensor_becomes_one(number: float, dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    assert call_operator("aten::mul", aten.mul.Tensor, (x, number), None).dtype == dtype


def test_an_error_of_the_model_is_raised() -> None:
    with pytest.raises(RuntimeError, match="too short"):
        FUNCTIONS["prim::RaiseException"]("too short", "builtins.ValueError")
