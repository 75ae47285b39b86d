"""What code asks of its arguments besides types and sizes, found by asking it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchferry
from families import in_turn
from torchferry.capturer.trial.reliance import find_reliances
from torchferry.errors import Mismatch, UsageError

SHAPES = ((4, 6), (5, 6), (7, 6))


class Model(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*args, **kwargs)


def pairs(*shapes: tuple[int, ...]) -> list[Any]:
    return [((torch.rand(shape), torch.rand(shape)), {}) for shape in shapes]


def try_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    try:
        return a.view(-1) + b.sum()
    except RuntimeError:
        return a.reshape(-1) - b.sum()


TRANSPOSED = torch.rand(6, 4).T
ASKING: dict[str, tuple[Any, Any, Any]] = {  # what is asked, code that asks, arguments it hits
    "is": ("shared memory", lambda a, b: a * 2 if a is b else a - b, lambda a, b: (a, a)),
    "contiguous": (
        "memory layout", lambda a, b: a + b if a.is_contiguous() else a - b,
        lambda a, b: (TRANSPOSED, b),
    ),
    "stride": (
        "memory layout", lambda a, b: a * a.stride(-1) + b, lambda a, b: (a, TRANSPOSED),
    ),
    "offset": (
        "memory layout", lambda a, b: a + b + b.storage_offset(),
        lambda a, b: (a, torch.rand(5, 6)[1:]),
    ),
    "try": ("memory layout", try_view, lambda a, b: (TRANSPOSED, b)),
    "gradient": (
        "gradients", lambda a, b: a + b if a.requires_grad else a - b,
        lambda a, b: (a.requires_grad_(), b),
    ),
    "parameter": (
        "gradients", lambda a, b: a + b if isinstance(b, nn.Parameter) else a - b,
        lambda a, b: (a, nn.Parameter(b)),
    ),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "check"), in_turn(ASKING, [True, False]))
def test_calls_that_answer_otherwise_are_refused(name: str, check: bool, tmp_path: Path) -> None:
    asked, body, other = ASKING[name]
    model = Model(body)
    program = torchferry.export(model, pairs(*SHAPES[1:]), check=check)
    a, b = torch.rand(4, 6), torch.rand(4, 6)
    torch.testing.assert_close(program(a, b), model(a, b))
    program.save(tmp_path / "model.onnx")
    for called in (program, torchferry.load(tmp_path)):
        with pytest.raises(UsageError, match=r"argument \w+ .*the model's code asks for"):
            called(*other(a.clone(), b.clone()))
    assert find_reliances(
        model, torchferry.Observation.from_inputs(model, pairs(*SHAPES))
    ).asked == (asked,)


def test_a_capture_says_what_it_relies_on(tmp_path: Path) -> None:
    _, body, other = ASKING["contiguous"]
    seen = torchferry.Observation.from_inputs(Model(body), pairs(*SHAPES))
    captured = torchferry.capture(Model(body), seen)
    assert captured.relies == ("memory layout",)
    with pytest.raises(UsageError, match="asks for the memory layout of its arguments"):
        captured.save(tmp_path / "model.pt2")
    program = torchferry.to_onnx(captured)
    with pytest.raises(UsageError, match="Give "):
        program(*other(torch.rand(4, 6), torch.rand(4, 6)))
    direct = torchferry.to_onnx(Model(body), *pairs((4, 6))[0])
    with pytest.raises(UsageError, match="Give "):
        direct(*other(torch.rand(4, 6), torch.rand(4, 6)))


def test_the_order_of_named_arguments() -> None:
    model = Model(lambda **kw: sum(x * 2**i for i, x in enumerate(kw.values())))
    sets = [((), {"a": torch.rand(n, 3), "b": torch.rand(n, 3)}) for n in (4, 5)]
    program = torchferry.export(model, sets)
    given = {"b": torch.rand(2, 3), "a": torch.rand(2, 3)}
    with pytest.raises(UsageError, match="in the order b, a, and were exported as a, b"):
        program(**given)
    ordered = dict(reversed(given.items()))
    torch.testing.assert_close(program(**ordered), model(**ordered))


def test_code_that_asks_nothing_takes_everything() -> None:
    model = Model(lambda a, b: a.view(a.shape[0], 2, 3).sum(1) + b.reshape(b.shape[0], 2, 3)[:, 0])
    program = torchferry.export(model, pairs(*SHAPES))
    rows = torch.rand(8, 6)
    for given in ((rows[::2], rows[:4]), (rows, rows), (nn.Parameter(rows), rows)):
        torch.testing.assert_close(program(*given), model(*given))


@pytest.mark.parametrize("check", [True, False])
def test_what_is_kept_of_calls_outside_of_modules(check: bool) -> None:
    count = [0]

    def body(x: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return x * count[0]

    sets = [((torch.rand(n, 3),), {}) for n in (4, 5)]
    program = torchferry.export(Model(body), sets, check=check)
    with pytest.raises(Mismatch, match="PyTorch computes something else each time it is called"):
        program(torch.rand(4, 3))


def test_a_number_is_no_tensor_and_a_tensor_no_number() -> None:
    x = torch.rand(4, 3, dtype=torch.float64)
    scaled = torchferry.to_onnx(Model(lambda x, t: x * t), (x, torch.tensor(2.0)))
    with pytest.raises(UsageError, match="is float, and was exported as a tensor"):
        scaled(x, 1e300)
    model = Model(lambda x, n: x[:n])
    program = torchferry.export(model, [((torch.rand(n + 4, 3), n), {}) for n in (4, 5)])
    with pytest.raises(UsageError, match="and was exported as an integer"):
        program(x.float(), torch.tensor(3))
    with pytest.raises(UsageError, match="integers as large as"):
        program(x.float(), 2**33)


@pytest.mark.parametrize("check", [True, False])
def test_what_was_recorded_otherwise_is_no_call_of_the_program(check: bool) -> None:
    """Two tensors are traced where one was given twice."""
    _, body, _ = ASKING["is"]
    sets = [((x, x), {}) for x in (torch.rand(4, 6), torch.rand(5, 6))]
    program = torchferry.export(Model(body), sets, check=check)
    for a, b in (sets[0][0], (torch.rand(4, 6), torch.rand(4, 6))):
        with pytest.raises((Mismatch, UsageError)):
            program(a, b)
