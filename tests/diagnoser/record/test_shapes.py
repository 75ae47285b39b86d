from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.shapes import Unsolved, measure, size_at, solve_row, solve_shapes
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import variants

N, M = (3, 5, 7, 8, 11), (2, 9, 4, 5, 6)
COLUMNS = {N: "n", M: "m"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4", (4,) * 5),
        ("n", N),
        ("n + 3", tuple(n + 3 for n in N)),
        ("2*n", tuple(2 * n for n in N)),
        ("3*m - 1", tuple(3 * m - 1 for m in M)),
        ("m + n", tuple(n + m for n, m in zip(N, M, strict=True))),
        ("-m + n + 2", tuple(n - m + 2 for n, m in zip(N, M, strict=True))),
        ("m*n", tuple(n * m for n, m in zip(N, M, strict=True))),
        ("4*m*n", tuple(4 * n * m for n, m in zip(N, M, strict=True))),
        ("n*n", tuple(n * n for n in N)),
        ("(n + 1)//2", tuple((n + 1) // 2 for n in N)),
    ],
)
def test_a_size_is_solved(text: str, wanted: tuple[int, ...]) -> None:
    assert sorted(str(solve_row(wanted, COLUMNS))) == sorted(text)


def test_too_few_runs_leave_it_open() -> None:
    with pytest.raises(Unsolved, match="several expressions fit"):
        solve_row((4, 10), {(2, 5): "n"} | {(3, 9): "m"})
    with pytest.raises(Unsolved, match="inputs of one size give several"):
        solve_row((1, 2, 3), {(5, 5, 6): "n"})
    with pytest.raises(Unsolved, match="no expression"):
        solve_row((1, 50, 2, 99, 3), COLUMNS)


def test_a_size_is_read_off_the_leaves() -> None:
    leaves = [torch.zeros(3, 4), None, True, 7]
    assert measure(leaves) == {(0, 0): 3, (0, 1): 4, (3, -1): 7}
    size = solve_row(tuple((n + 1) // 2 for n in N), {N: "x0_0"})
    assert size_at(size, leaves) == 2
    assert size_at(5, leaves) == 5


def recorded_piece(model: nn.Module, *calls: tuple[Any, ...]) -> Piece:
    piece = build_tree(Piece, model.eval())
    with recorded(piece), torch.no_grad():
        for call in calls:
            model(*call)
    return piece


class Decides(nn.Module):
    """Runs something behind an if on values, which fake tensors cannot follow."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if x.sum() < 1e30 else self.inner(-x)


@pytest.mark.parametrize(
    ("inner", "sizes", "shape"),
    [
        (nn.Linear(8, 3), ((2, 8), (5, 8)), "x0_0, 3"),
        (nn.Flatten(0), ((2, 8), (5, 8)), "8*x0_0"),
        (
            nn.Conv1d(3, 4, 3, stride=2, padding=1),
            ((2, 3, 9), (5, 3, 12)),
            "x0_0, 4, (x0_2 + 1)//2",
        ),
        (nn.AvgPool1d(2), ((2, 3, 8), (5, 3, 12)), "x0_0, 3, x0_2//2"),
        (nn.ConstantPad1d(2, 0.0), ((2, 9), (5, 12)), "x0_0, x0_1 + 4"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_shape_of_a_module_is_found_from_two_calls(
    inner: nn.Module, sizes: tuple[tuple[int, ...], ...], shape: str, wrapped: bool
) -> None:
    piece = recorded_piece(
        Decides(inner) if wrapped else inner, *((torch.rand(s),) for s in sizes)
    )
    (found,) = solve_shapes(piece, variants(piece, numbers=True)[0])
    assert not isinstance(found, Unsolved)
    assert ", ".join(map(str, found)) == shape


def test_one_call_fixes_the_shape() -> None:
    piece = recorded_piece(nn.Linear(8, 3), (torch.rand(2, 8),))
    assert solve_shapes(piece, variants(piece)[0]) == [(2, 3)]


def test_a_size_that_depends_on_values_is_not_solved() -> None:
    class Positive(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0]

    piece = recorded_piece(Positive(), (torch.randn(2, 40),), (torch.randn(5, 40),))
    (found,) = solve_shapes(piece, variants(piece)[0])
    assert isinstance(found, Unsolved)
    assert found.axis == 0
