import gc
import weakref

import pytest
import torch

from torchferry.capturer.trial.agreement import compare_calls, load_program, run_program
from torchferry.errors import UsageError
from torchferry.observer import observe


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x.mean(0) + y["a"]


def program(**dynamic):
    shapes = {"x": dynamic, "y": {"a": {}}}
    given = {"x": torch.randn(3, 2), "y": {"a": torch.randn(2)}}
    return torch.export.export(Model(), (), given, dynamic_shapes=shapes)


def seen_at(*sizes):
    model = Model()
    with observe(model) as seen:
        for size in sizes:
            model(y={"a": torch.randn(2)}, x=torch.randn(size, 2))
    return seen


def test_every_call_is_compared():
    checks = compare_calls(_dynamic(), seen_at(2, 7))
    assert [(one.ok, one.verdict.kind, one.sizes) for one in checks] == [
        (True, "equal", {"batch_size": 2}), (True, "equal", {"batch_size": 7}),
    ]  # fmt: skip


def test_a_size_the_program_does_not_take_is_no_agreement():
    good, bad = compare_calls(program(), seen_at(3, 7))
    assert good.ok
    assert not bad.ok
    assert bad.verdict.kind == "failed"
    assert "7" in bad.verdict.evidence


def test_other_numbers_are_no_agreement():
    class Other(Model):
        def forward(self, x, y):
            return super().forward(x, y) + 0.1

    given = {"x": torch.randn(3, 2), "y": {"a": torch.randn(2)}}
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "y": {"a": {}}}
    wrong = torch.export.export(Other(), (), given, dynamic_shapes=shapes)
    (check,) = compare_calls(wrong, seen_at(2))
    assert not check.ok
    assert check.verdict.kind == "differs"
    assert check.verdict.difference.abs == pytest.approx(0.1, abs=1e-3)


def test_a_call_without_what_the_program_takes():
    with pytest.raises(UsageError, match=r"y\.a"):
        run_program(program(), (), {"x": torch.randn(3, 2)})


def test_what_is_given_is_not_changed():
    class Adds(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    changes = torch.export.export(Adds(), (torch.zeros(2),))
    x = torch.zeros(2)
    assert run_program(changes, (x,), {}).tolist() == [1, 1]
    assert x.tolist() == [0, 0]


def _dynamic():
    given = {"x": torch.randn(3, 2), "y": {"a": torch.randn(2)}}
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "y": {"a": {}}}
    return torch.export.export(Model(), (), given, dynamic_shapes=shapes)


def test_the_module_of_a_program_is_made_once_and_goes_with_it() -> None:
    captured = program()
    assert load_program(captured) is load_program(captured)
    gone = weakref.ref(captured)
    del captured
    gc.collect()
    assert gone() is None
