from __future__ import annotations

import operator
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import optimization_hint

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode
from torchferry.diagnoser.trial.trial import fails_alike, try_piece


def tried(model: nn.Module, *calls: tuple[Any, ...], **options: Any) -> StatusExport:
    piece = build_tree(Piece, model)
    with recorded(piece), torch.no_grad():
        for call in calls:
            model(*call)
    return try_piece(piece, Options(**options))


class Depends(nn.Module):
    """What it computes depends on what torch.export does not see."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_exporting() else x


class Fixes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(operator.index(x.shape[0]), 1)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x - 1


def sizes(*batches: int) -> list[tuple[torch.Tensor]]:
    return [(torch.rand(batch, 4),) for batch in batches]


def test_what_works_is_ok() -> None:
    status = tried(nn.Linear(4, 3), *sizes(2, 5))
    assert (status.status, status.made) == (StatusExportCode.OK, "ExportedProgram")
    assert status.dynamic_shapes == {"input": {0: torch.export.Dim.DYNAMIC}}
    assert status.exported is not None


def test_what_was_never_called_is_no_failure() -> None:
    status = tried(nn.Linear(4, 3))
    assert (status.status, status.failed) == (StatusExportCode.NOINPUT, False)


def test_other_numbers_are_a_discrepancy() -> None:
    status = tried(Depends(), *sizes(2, 5))
    assert (status.status, status.step) == (StatusExportCode.FAIL_DISC, "DISC")
    assert status.reason.startswith("max abs 1, max rel ")
    assert tried(Depends(), *sizes(2, 5), discrepancies=False).is_ok()
    assert tried(Depends(), *sizes(2, 5), atol=2.0, rtol=1e9).is_ok()


def test_a_discrepancy_has_the_line_where_it_begins() -> None:
    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(x)
            return y * (1 if torch.compiler.is_exporting() else len(x))  # this line

    for exporter in ("fx", "to_onnx"):
        status = tried(Counted(), *sizes(2, 5), exporter=exporter)
        assert status.status is StatusExportCode.FAIL_DISC
        assert status.line is not None
        assert status.line.endswith("# this line")


def test_a_dimension_that_becomes_a_constant_is_a_failure_unless_nothing_is_dynamic() -> None:
    status = tried(Fixes(), *sizes(2, 5))
    assert (status.status, status.step) == (StatusExportCode.FAIL, "EXPORT")
    assert "fixed to" in status.reason
    assert "torch.zeros(operator.index(x.shape[0]), 1)" in str(status.line)
    assert tried(Fixes(), *sizes(2, 5), use_dynamic_shapes=False).is_ok()
    assert tried(Fixes(), *sizes(2)).is_ok()


def test_a_guard_that_is_right_fails_and_one_that_is_not_is_noted() -> None:
    status = tried(Branches(), *sizes(2, 5))
    assert (status.status, status.step) == (StatusExportCode.FAIL, "EVAL")
    assert status.reason.startswith(("Guard failed", "Expected input"))
    status = tried(nn.LSTM(4, 3, batch_first=True), *[(torch.rand(b, 3, 4),) for b in (2, 5, 1)])
    assert status.is_ok()
    assert status.notes[0].startswith("torch.export's program refuses call 3 of the 3 tried, for")


def test_random_numbers_are_called_random() -> None:
    status = tried(nn.Dropout(0.5), *sizes(20, 50))
    assert status.is_ok()
    assert any("random" in note for note in status.notes)


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * random.gauss(2, 1)  # this line


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls  # this line


@pytest.mark.parametrize("exporter", ["fx", "to_onnx", "torch_script"])
@pytest.mark.parametrize("cls", [Draws, Counts])
def test_what_changes_from_call_to_call_is_no_constant(
    cls: type[nn.Module], exporter: str
) -> None:
    status = tried(cls(), *sizes(2, 5), exporter=exporter)
    assert (status.status, status.step, status.unsteady) == (
        StatusExportCode.FAIL_DISC, "DISC", True,
    )  # fmt: skip
    assert str(status.line).endswith("# this line")
    assert ("self.calls" in status.reason) == (cls is Counts)
    assert "buffer" in status.advice


def test_random_numbers_do_not_hide_another_fault() -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + torch.rand_like(x) / 1000
            return y * len(y)

    status = tried(Noisy(), *sizes(2, 5), exporter="torch_script")
    assert status.step == "DISC"
    assert str(status.line).endswith("return y * len(y)")


def test_calls_that_a_buffer_counts_are_no_fault() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.sum(0)
            return x + self.total

    assert tried(Sums(), *sizes(2, 5)).is_ok()


def test_small_differences_count_by_dtype() -> None:
    class Nearly(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (1.004 if torch.compiler.is_exporting() else 1)

    assert tried(Nearly(), *sizes(2, 5)).step == "DISC"
    halves = [(x.to(torch.bfloat16),) for (x,) in sizes(2, 5)]
    assert tried(Nearly(), *halves).is_ok()
    assert tried(Nearly(), *sizes(2, 5), atol=0.1).is_ok()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("exporter", ["to_onnx", "torch_script"])
def test_half_precision_runs_where_onnxruntime_has_no_kernel(
    dtype: torch.dtype, exporter: str
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()).to(dtype)
    status = tried(model, *[(x.to(dtype),) for (x,) in sizes(2, 5)], exporter=exporter)
    assert status.is_ok(), status


def add_one(module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    return (args[0] + 1,)


@pytest.mark.parametrize("exporter", ["fx", "to_onnx", "torch_script"])
def test_hooks_are_a_part_of_the_module(exporter: str) -> None:
    model = nn.Linear(4, 4)
    model.register_forward_pre_hook(add_one)
    model.register_forward_hook(lambda module, args, out: out * 2)
    assert tried(model, *sizes(2, 5), exporter=exporter).is_ok()


def test_hooks_that_change_what_forward_takes() -> None:
    model = nn.Linear(4, 4)
    model.register_forward_pre_hook(lambda module, args: (args[0] + args[1],))
    x, y = sizes(2, 5)
    assert tried(model, (*x, *x), (*y, *y)).is_ok()


def test_a_hook_can_be_at_fault() -> None:
    model = nn.ReLU()
    model.register_forward_hook(lambda module, args, out: out if out.sum() > 0 else -out)
    status = tried(model, *sizes(2, 5))
    assert "data-dependent" in status.reason
    assert "register_forward_hook" in str(status.line)


@pytest.mark.parametrize("exporter", ["fx", "to_onnx", "torch_script"])
def test_arguments_that_no_exporter_takes_are_a_part_of_the_module(exporter: str) -> None:
    class Places(nn.Module):
        def forward(
            self, device: torch.device, x: torch.Tensor, dtype: torch.dtype, n: int = 2
        ) -> torch.Tensor:
            return x.to(device, dtype) * n

    calls = [(torch.device("cpu"), x, torch.float64) for (x,) in sizes(2, 5)]
    status = tried(Places(), *calls, exporter=exporter)
    assert status.is_ok(), status


@pytest.mark.parametrize("exporter", ["to_onnx", "torch_script"])
def test_what_is_left_of_numbers_that_cancel_out_is_no_fault(exporter: str) -> None:
    class Cancels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.lin(x)
            return y.mean(-1) - y.sum(-1) / 64, torch.softmax(y, -1).sum(-1) - 1

    calls = [(torch.rand(rows, 64),) for rows in (2, 5)]
    status = tried(Cancels(), *calls, exporter=exporter)
    assert status.is_ok(), status


def test_buffers_are_left_as_they_were() -> None:
    model = nn.BatchNorm1d(4)
    tried(model, *sizes(2, 5))
    assert model.num_batches_tracked.item() == 2  # the two calls that were recorded


def test_calls_of_two_kinds_are_told() -> None:
    class Optional(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
            return x if y is None else x + y

    (x,), (other,) = sizes(2, 5)
    status = tried(Optional(), (x,), (other, other), (other,))
    assert status.is_ok()
    assert status.notes[0].startswith("2 of its 3 calls were tried")


def test_the_first_failure_is_raised_when_it_is_to_be() -> None:
    with pytest.raises(Exception, match="data-dependent"):
        tried(Decides(), *sizes(2, 5), quiet=False)
    assert tried(Decides(), *sizes(2, 5)).step == "EXPORT"


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_a_part_that_fails_at_the_line_of_the_whole_needs_one_try() -> None:
    root = build_tree(Piece, nn.Sequential(nn.Linear(4, 4), Decides()))
    with recorded(root), torch.no_grad():
        for rows in (2, 5):
            root.model(torch.ones(rows, 4))
    around = try_piece(root, Options())
    linear, decides = root.children
    assert around.inside >= {id(root.model), id(decides.model)}
    assert id(linear.model) not in around.inside
    found = fails_alike(decides, around, Options())
    alone = try_piece(decides, Options())
    assert found is not None
    assert (found.status, found.step, found.line) == (alone.status, alone.step, alone.line)
    assert (found.reason, found.advice) == (alone.reason, alone.advice)
    # It was not being called when the whole failed; torch.onnx has ways of its own.
    assert fails_alike(linear, around, Options()) is None
    assert fails_alike(decides, around, Options("onnx_dynamo")) is None


def test_a_part_that_fails_elsewhere_is_tried_in_full() -> None:
    root = build_tree(Piece, nn.Sequential(Decides()))
    with recorded(root), torch.no_grad():
        root.model(torch.ones(2, 4))
    around = StatusExport(
        StatusExportCode.FAIL, "EXPORT", "no", line="model.py:1: y = x",
        inside=frozenset({id(root.children[0].model)}),
    )  # fmt: skip
    assert fails_alike(root.children[0], around, Options()) is None


class Attends(nn.Module):
    """The mask is as long as the past and x together."""

    def forward(
        self, other: torch.Tensor, x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return (torch.cat([past, x], 1) * mask[:, :, None]).sum(1) + other.sum(1)


def test_a_size_that_can_be_told_in_several_ways_is_not_fixed() -> None:
    # By chance the mask is also 1 longer than the other argument in both calls.
    calls = [
        (
            torch.rand(2, n + m - 1, 4),
            torch.rand(2, n, 4),
            torch.rand(2, m, 4),
            torch.ones(2, n + m),
        )
        for n, m in ((2, 3), (3, 6))
    ]
    found = tried(Attends(), *calls)
    assert str(found.status) == "OK", found


class Wrong(nn.Module):
    """Right at the sizes that were traced."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        rows = optimization_hint(x.shape[0])
        return x * rows if mask is None else x * rows * mask


def test_a_kind_of_calls_that_is_seen_once_is_compared_at_other_sizes_too() -> None:
    found = tried(Wrong(), (torch.rand(2, 4), None), (torch.rand(3, 4), torch.ones(3, 4)))
    assert str(found.status) == "FAIL_DISC"
    assert "1 of its 2 calls were tried" in found.notes[0]


def test_one_way_of_exporting_is_tried_alone() -> None:
    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + operator.index(x.shape[0])

    root = build_tree(Piece, Sized())
    with recorded(root), torch.no_grad():
        for rows in (2, 5):
            root.model(torch.ones(rows, 4))
    once = try_piece(root, Options(), once=True)
    assert "Constraints violated" in once.reason
    assert "was fixed to" in try_piece(root, Options()).reason


@dataclass
class Named:
    y: torch.Tensor
    count: int


class Names(nn.Module):
    def forward(self, x: torch.Tensor) -> Named:
        return Named(x + 1, 3)


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Names()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.part(x)
        return found.y * found.count


@pytest.mark.slow
def test_a_number_that_the_caller_takes_is_no_fault_of_what_returns_it() -> None:
    root = build_tree(Piece, Takes())
    with recorded(root), torch.no_grad():
        for rows in (2, 5):
            root.model(torch.ones(rows, 4))
    options = Options("onnx_dynamo")
    assert try_piece(root.children[0], options).is_ok()
    alone = build_tree(Piece, Names())
    alone.calls = root.children[0].calls
    found = try_piece(alone, options)  # which torch.onnx does not take
    assert found.failed
    assert "return no numbers" in found.advice


class Sized(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x + 1, x.shape[0]


def test_a_graph_that_gives_sizes_as_tensors_is_right() -> None:
    root = build_tree(Piece, Sized())
    with recorded(root), torch.no_grad():
        for rows in (2, 5):
            root.model(torch.rand(rows, 4))
    assert try_piece(root, Options("torch_script")).is_ok()
