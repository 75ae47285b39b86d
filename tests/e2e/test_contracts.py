"""Models whose arguments have contracts: from sets alone, with sizes stated, from a function."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchferry
from families import slow_among
from torchferry.errors import UsageError
from torchferry.judge.apart import can_fork


class Window(nn.Module):
    """``start + t <= length``."""

    def forward(self, x: torch.Tensor, memory: torch.Tensor, start: int) -> torch.Tensor:
        return x + memory.narrow(1, start, x.shape[1])


def window(batch_size: int, t: int, length: int, start: int) -> Any:
    return torch.randn(batch_size, t, 4), torch.randn(batch_size, length, 4), start


class Blocks(nn.Module):
    """Height and width are multiples of 8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        if h % 8 or w % 8:
            raise ValueError("height and width must be multiples of 8")
        return x.view(b, c, h // 8, 8, w // 8, 8).mean((3, 5))


def image(batch_size: int, height: int, width: int) -> Any:
    return (torch.randn(batch_size, 3, height, width),)


class Masked(nn.Module):
    """A mask of past and now."""

    def forward(self, x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([past, x], 1)
        scores = (x @ keys.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4)
        return scores.softmax(-1) @ keys


def masked(batch_size: int, past: int, now: int) -> Any:
    mask = torch.ones(batch_size, past + now, dtype=torch.long)
    return torch.randn(batch_size, now, 4), torch.randn(batch_size, past, 4), mask


class Bag(nn.Module):
    """The last offset is the length; PyTorch may crash where it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="mean", padding_idx=3, include_last_offset=True)

    def forward(self, index: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        return self.bag(index, offset)


def bag(count: int, bags: int) -> Any:
    return torch.arange(count) % 20, torch.linspace(0, count, bags + 1).long()


class Windows(nn.Module):
    """Attention in windows of 7, padded, as Swin has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x = F.pad(x, (0, 0, 0, (7 - w % 7) % 7, 0, (7 - h % 7) % 7))
        high, wide = x.shape[1:3]
        y = x.view(b, high // 7, 7, wide // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)
        y = (y @ y.transpose(1, 2)).softmax(-1) @ y
        y = y.view(b, high // 7, wide // 7, 7, 7, c).transpose(2, 3).reshape(b, high, wide, c)
        return y[:, :h, :w]


def windows(batch_size: int, height: int, width: int) -> Any:
    return (torch.randn(batch_size, height, width, 4),)


# model, function of sizes, recorded sizes, the same as stated, later sizes
CASES: dict[str, Any] = {
    "window": (Window, window, [(2, 3, 9, 2), (3, 4, 12, 5)],
               "batch_size=1..8, x_dim_1=2..4, memory_dim_1=9..40, start=1..5",
               [(1, 1, 1, 0), (4, 7, 30, 20)]),
    "blocks": (Blocks, image, [(2, 16, 24), (3, 32, 40)], "x_dim_2=8..:8, x_dim_3=8..80:8",
               [(1, 8, 8), (2, 64, 56)]),
    "masked": (Masked, masked, [(2, 3, 2), (3, 5, 4)], "batch_size=1..4", [(1, 1, 1), (2, 9, 7)]),
    "bag": (Bag, bag, [(8, 2), (11, 3)], "batch_size=8..16", [(6, 1), (30, 7)]),
    "windows": (Windows, windows, [(2, 21, 30), (3, 35, 16)], "x_dim_1=7..70",
                [(1, 3, 50), (2, 14, 7)]),
}  # fmt: skip


@pytest.fixture(params=slow_among(CASES, ["blocks", "bag"]))
def case(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    model, *others = CASES[request.param]
    return (model().eval(), *others)


def check(
    model: nn.Module, program: Any, make: Any, later: list[tuple[int, ...]], refused: int = 0
) -> Any:
    """Right by its own report, and at sizes that it was not verified at, but for those refused."""
    assert program.report.ok, program.report.problems
    for sizes in later:
        inputs = make(*sizes)
        try:
            got = program(*inputs)
        except torchferry.UsageError:
            refused -= 1
            assert refused >= 0
            continue
        torch.testing.assert_close(got, model(*inputs), rtol=1e-4, atol=1e-5)
    return program.report.data


def largest(data: Any) -> dict[str, float]:
    """How often the largest recorded size the largest made one is, by name."""
    most: dict[str, dict[str, int]] = {"made": {}, "recorded": {}}
    for one in data["checks"]:
        for name, size in one["sizes"].items():
            most[one["inputs"]][name] = max(size, most[one["inputs"]].get(name, 0))
    return {name: size / max(most["recorded"][name], 1) for name, size in most["made"].items()}


@pytest.mark.sample(1)
def test_recorded_sets_alone(case: Any) -> None:
    model, make, recorded, _, later = case
    data = check(model, torchferry.export(model, [make(*s) for s in recorded]), make, later)
    assert max(largest(data).values()) <= 4


@pytest.mark.sample(1)
def test_a_function_of_sizes(case: Any) -> None:
    model, make, _, _, later = case
    data = check(model, torchferry.export(model, make), make, later)
    tried = [one for one in data["checks"] if one["breaks"] is None]
    assert not [one for one in tried if one["refused"]]
    assert any(one["inputs"] == "made" for one in tried)
    names = set(make.__code__.co_varnames[: make.__code__.co_argcount])
    assert {d["name"] for d in data["dimensions"]} == names
    assert max(largest(data).values()) <= 4


def test_stated_sizes(case: Any) -> None:
    model, make, recorded, stated, later = case
    sets = [make(*sizes) for sizes in recorded]
    program = torchferry.export(model, sets, sizes=stated)
    # One token may be taken for something else, and nobody tried what is stated to be illegal.
    data = check(model, program, make, later, refused=int(isinstance(model, Window)))
    legal = torchferry.Observation.from_inputs(model, sets).legal.of(stated)
    assert all(legal.allows(one["sizes"]) for one in data["checks"])
    notes = {d["name"]: d["note"] for d in data["dimensions"]}
    for name in legal.ranges:
        assert notes[name].startswith(f"stated as {legal.text(name)}")


class Dies(nn.Module):
    """Ends the process at some sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and x.shape[0] in (1, 6):
            os.kill(os.getpid(), signal.SIGSEGV)
        return x * 2


@pytest.mark.skipif(not can_fork(nn.ReLU()), reason="this system has no fork")
def test_sizes_that_kill_pytorch_are_rows() -> None:
    program = torchferry.export(Dies(), [(torch.rand(n, 4),) for n in (3, 5)])
    report = program.report
    assert report is not None
    assert report.ok
    (dead,) = [one for one in report.data["checks"] if one["refused"]]
    assert dead["sizes"] == {"batch_size": 1}
    assert dead["refused"].startswith("PyTorch ended the process (signal 11, segmentation fault)")
    assert "T1s1x4" in dead["refused"]
    assert "PyTorch ended the process" in str(report.sections)


def test_a_budget_of_nothing_leaves_rows_that_say_so() -> None:
    program = torchferry.export(nn.ReLU(), [(torch.rand(n, 4),) for n in (3, 5)], budget=0)
    made = [one for one in program.report.data["checks"] if one["inputs"] == "made"]
    assert [one["untried"] for one in made] == ["beyond the budget of 0 s"] * 3
    assert "not tried: beyond the budget of 0 s" in str(program.report.sections)


def test_a_function_serves_capture_compare_and_diagnose() -> None:
    model = Blocks().eval()
    captured = torchferry.capture(model, image)
    assert not captured.fixed
    program = torchferry.export(model, image)
    assert torchferry.compare(model, program, image).ok
    assert torchferry.diagnose(model, image).ok


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch_size, seed=0: (torch.rand(batch_size, 3, 8, 8),), "parameter seed changes"),
        (lambda rows: [image(rows, 8, 8)], "gives a list"),
        (lambda height: image(1, height, height + 1), "multiples of 8"),
    ],
)
def test_functions_that_do_not_fit_are_mistakes(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        torchferry.export(Blocks(), function)
