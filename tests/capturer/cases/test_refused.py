"""Code that values decide: refused with the user's line and what to write, or rewritten."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from torchferry.capturer import capture
from torchferry.errors import CaptureError
from torchferry.observer import Observation


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        chosen = x.argmax(-1) % 3
        out = torch.zeros_like(x)
        for expert in chosen.unique():  # loops
            rows = (chosen == expert).nonzero()[:, 0]
            out[rows] = self.experts[expert](x[rows])
        return out


class AllExperts(Experts):
    def forward(self, x: Tensor) -> Tensor:
        chosen = x.argmax(-1) % 3
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where(chosen == number)[0]
            out = out.index_add(0, rows, expert(x[rows]))
        return out


class Slices(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        longest = lengths.max().item()
        return x[:, :longest] * 2  # slices


class Grid(nn.Module):
    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        parts = x.split([height * width for height, width in grid.tolist()])  # lists
        return torch.stack([part.mean(0) for part in parts])


class ChecksTokens(nn.Module):
    def forward(self, ids: Tensor, images: Tensor) -> Tensor:
        mask = ids == 9
        if mask.sum() != images.size(0):  # checks
            raise ValueError("images and image tokens do not match")
        out = ids[..., None].expand(-1, -1, 4).to(images.dtype)
        return out.masked_scatter(mask[..., None].expand_as(out), images)


class TakesTime(nn.Module):
    def forward(self, x: Tensor, decay: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            state = state * decay + x[:, t]
            outputs.append(state)
        return torch.stack(outputs, dim=1)


def grid(n: int, rows: int = 1) -> tuple[Tensor, Tensor]:
    return torch.randn(4 * n + 6 * rows, 3), torch.tensor([[2, 2 * n], *[[2, 3]] * rows])


REFUSED = {
    Experts: ([(torch.randn(n, 4),) for n in (5, 9)], "loops", "Loop over all experts"),
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_refused_with_the_line_and_the_rewrite(make, line):
    sets, mark, rewrite = REFUSED[make]
    model = make().eval()
    with pytest.raises(CaptureError) as caught:
        capture(model, Observation.from_inputs(model, [(one, {}) for one in sets]))
    message = str(caught.value)
    assert f", at {line(mark)}" in message
    assert rewrite in message
    assert len(message.splitlines()) <= 12


def test_a_slice_up_to_a_number_that_a_tensor_holds(captured):
    captured(Slices(), [(torch.randn(2, n, 3), torch.tensor([2, n - 1])) for n in (5, 9, 3)])


def test_a_list_of_sizes_is_right_for_one_number_of_images_and_names_the_line(captured, line):
    captured(Grid(), [grid(n) for n in (2, 3, 5)])
    sets = [(grid(n, n), {}) for n in (1, 2, 3)]
    found = capture(Grid(), Observation.from_inputs(Grid(), sets))
    assert ("grid", 0) in [(one.argument, one.axis) for one in found.fixed]
    assert line("lists") in [one.line for one in found.fixed]


def test_the_rewrite_that_is_advised_for_experts(captured):
    torch.manual_seed(0)
    captured(AllExperts(), [(torch.randn(n, 4),) for n in (5, 9, 1)])


def tokens(batch: int, length: int, images: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 9, (batch, length))
    ids.view(-1)[torch.randperm(batch * length)[:images]] = 9
    return ids, torch.randn(images, 4)


def test_a_check_of_values_is_left_to_the_run(captured):
    sets = [tokens(2, 6, 5), tokens(1, 11, 4), tokens(3, 4, 2)]
    found = captured(ChecksTokens(), sets)
    assert found.attempts[-1].strategy == "the same, checks of values left to the run"
    assert "-    if mask.sum() != images.size(0):" in found.rewritten
    ids, images = tokens(2, 6, 5)
    with pytest.raises(RuntimeError, match="assertion"):
        found.program.module(check_guards=False)(ids=ids, images=images[:4])


class ChecksAndDecides(ChecksTokens):
    def forward(self, ids: Tensor, images: Tensor | None = None) -> Tensor:
        if images is not None:
            assert ids.sum() > 0, "no tokens"
            if ids.max() > 5:  # decides
                ids = ids + 1
        return ids


def test_what_is_no_check_is_refused_all_the_same(line):
    sets = [(tokens(*size), {}) for size in ((2, 6, 5), (1, 11, 4))]
    model = ChecksAndDecides()
    with pytest.raises(CaptureError, match="rewrite is not False") as caught:
        capture(model, Observation.from_inputs(model, sets), rewrite=False)
    assert line("decides") in str(caught.value)
    assert "checks of values left to the run" in str(caught.value)


def test_a_recurrence_is_fixed_and_named_and_dynamic_when_rewritten(captured):
    sets = [(torch.randn(b, t, 3), torch.rand(3)) for b, t in ((2, 5), (3, 9), (1, 1))]
    model = TakesTime()
    seen = Observation.from_inputs(model, [(one, {}) for one in sets])
    found = capture(model, seen, rewrite=False)
    (fixed,) = found.fixed
    assert (fixed.argument, fixed.axis, fixed.size) == ("x", 1, 5)
    assert "for t in range(x.shape[1]):" in (fixed.line or "")
    again = captured(model, sets, rewrite=True)
    assert "_torchferry_dispatch.loop(" in again.rewritten
