"""Guards against sizes of 0 and 1 go if the program is right there, and stay if it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import torchferry
from torchferry.capturer import capture
from torchferry.errors import Mismatch, UsageError
from torchferry.observer import Observation


class Model(torch.nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.body(x, y)


def guards(body: Any, *, settle: bool = True) -> tuple[list[str], tuple[str, ...]]:
    model = Model(body).eval()
    sets = [((torch.randn(n, 3), torch.randn(n + m)), {}) for n, m in ((2, 3), (5, 4), (3, 9))]
    captured = capture(model, Observation.from_inputs(model, sets), settle=settle)
    return captured.program._guards_code, captured.doubts


def masks_several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x + torch.full_like(x, -torch.inf).triu(x.shape[1])
    return x + y.sum()


def masks_in_all(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] + y.shape[0] != 1:
        x = x + torch.full_like(x, -torch.inf).triu(x.shape[1])
    return x + y.sum()


NEEDLESS = {"more for several": masks_several, "more for several in all": masks_in_all}
SILENT = {  # torch keeps no guard of these: its symbols are positive
    "not 0": lambda x, y: x + y.sum() if y.shape[0] != 0 else x - 1,
    "truth": lambda x, y: x + y.sum() if y.shape[0] else x - 1,
    "elements": lambda x, y: x + y.sum() if y.numel() > 0 else x - 1,
    "product": lambda x, y: x + y.sum() if x.shape[0] * y.shape[0] else x - 1,
}
NEEDED = {
    # What else that code does, for other values and sizes, nobody knows.
    "other code for the same": lambda x, y: x * 2 if x.shape[0] > 1 else x + x,
    "a branch inside": lambda x, y: x * 2 if x.shape[0] > 1 else x * (3 if len(y) > 50 else 2),
    "special values": lambda x, y: x / x if x.shape[0] != 1 else torch.ones_like(x),
    "another value at 1": lambda x, y: x * 2 if x.shape[0] > 1 else x + 1,
    "another shape at 1": lambda x, y: x[:, 0] if x.shape[0] != 1 else x,
    "a larger number": lambda x, y: x * 2 if x.shape[0] != 7 else x + x,
}


@pytest.mark.parametrize("name", NEEDLESS)
def test_a_needless_guard_goes(name: str) -> None:
    assert guards(NEEDLESS[name], settle=False)[0]
    assert guards(NEEDLESS[name]) == ([], ())


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NEEDED)
def test_a_guard_that_makes_a_difference_stays(name: str) -> None:
    before, _ = guards(NEEDED[name], settle=False)
    assert before
    assert set(before) <= set(guards(NEEDED[name])[0])


@pytest.mark.parametrize("name", SILENT)
def test_a_size_of_0_that_torch_takes_for_impossible_is_tried(name: str) -> None:
    kept, _ = guards(SILENT[name])
    assert "L['y'].size()[0] != 0" in kept


def integer(x: torch.Tensor, y: torch.Tensor) -> int:
    return int(y.max() * 0)  # only the strict strategy takes this, for which 0 and 1 are special


def same(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    integer(x, y)
    return x * 2


def other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    integer(x, y)
    return x * 2 if x.shape[0] != 1 else x - 1


def test_sizes_that_a_strict_capture_takes_for_impossible_are_tried() -> None:
    _, doubts = guards(same, settle=False)
    assert {doubt.partition(" ")[2] for doubt in doubts} == {"!= 0", "!= 1"}
    kept, left = guards(same)
    assert left == ()
    assert not any("flat_args'][0].size()[0]" in guard for guard in kept)
    kept, _ = guards(other)
    assert "L['flat_args'][0].size()[0] != 1" in kept
    assert "L['flat_args'][0].size()[0] != 0" not in kept


def test_a_program_of_a_size_of_1_is_for_that_alone() -> None:
    model = Model(lambda x, y: x * 2 if x.shape[0] == 1 else x.cumsum(0)).eval()
    dynamic = torch.export.Dim.DYNAMIC
    given = (torch.randn(1, 3), torch.randn(4))
    program = torchferry.to_onnx(model, given, dynamic_shapes=({0: dynamic}, None))
    assert torch.equal(program(*given), model(*given))
    with pytest.raises(UsageError, match=r"exported for sizes with .* == 1"):
        program(torch.randn(2, 3), torch.randn(4))


def is_wrong_where_it_was_captured(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if type(x.shape[0]) is int else x - 1


def test_a_program_that_is_wrong_for_its_own_call_is_unproven(tmp_path: Path) -> None:
    """A size is no int while torch.export traces: no guard says that the other way was taken."""
    model = Model(is_wrong_where_it_was_captured).eval()
    sets = [((torch.randn(n, 3), torch.randn(n + m)), {}) for n, m in ((2, 3), (5, 4), (3, 9))]
    captured = capture(model, Observation.from_inputs(model, sets))
    assert "wrong for a call that was recorded: max abs" in captured.unproven
    with pytest.raises(Mismatch, match="is not saved"):
        captured.save(tmp_path / "m.pt2")
    with pytest.raises(Mismatch, match="a call would give wrong numbers"):
        captured(*sets[0][0])
    for program in (
        torchferry.to_onnx(captured),
        torchferry.to_onnx(model, *sets[0], dynamic_shapes=({0: "n"}, {0: "m"})),
        torchferry.export(model, Observation.from_inputs(model, sets), check=False),
    ):
        with pytest.raises(Mismatch, match="not found right in any call"):
            program(*sets[0][0])
