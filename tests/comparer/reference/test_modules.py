from __future__ import annotations

import pytest
import torch

from torchferry.comparer.reference.modules import called, numbers_of, trace_modules, watch_modules
from torchferry.errors import UsageError


@pytest.mark.parametrize("budget", [1, 200, 2**26])
def test_modules_give_their_outputs_whatever_the_budget(small, budget):
    wanted = {"blocks.0.norm", "blocks.1", "head", ""}
    found = dict(trace_modules(small.module, small.args, {}, wanted, budget=budget))
    assert list(found) == ["blocks.0.norm", "blocks.1", "head", "", ":1"]
    x = small.args[0]
    torch.testing.assert_close(found["blocks.0.norm"], small.module.blocks[0].norm(x))
    torch.testing.assert_close(found[""], small.module(x)["logits"])
    torch.testing.assert_close(found[":1"], small.module(x)["top"])


def test_hooks_are_gone_afterwards_and_in_place_writes_do_not_reach_what_was_seen():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(inplace=True))
    x = torch.randn(5, 2)
    found = dict(trace_modules(model, (x,), {}, {"0", "1"}))
    torch.testing.assert_close(found["0"], model[0](x))
    torch.testing.assert_close(found["1"], model[0](x).relu())
    assert not any(module._forward_hooks for module in model.modules())


def test_of_several_calls_the_last_counts():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(self.act(x) - 1)

    found = dict(trace_modules(Twice(), (torch.tensor([3.0, 0.5]),), {}, {"act"}))
    assert found["act"].tolist() == [2, 0]


def test_a_failing_model_keeps_no_hooks():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match="Sequential fails on these inputs in eager mode, in 0: "):
        list(trace_modules(model, (torch.rand(3, 3),), {}, {"0"}))
    assert not model[0]._forward_hooks


class Inner(torch.nn.Module):
    def forward(self, x):
        raise ValueError("bad thing\nand more")


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Identity(), Inner()])

    def forward(self, x):
        return self.parts[1](self.parts[0](x))


def test_what_a_module_raises_is_told_with_its_place():
    with pytest.raises(UsageError) as caught:
        called(Outer(), (torch.ones(1),), {})
    first, second = str(caught.value).splitlines()
    assert first == (
        "Outer fails on these inputs in eager mode, in parts.1: ValueError: bad thing"
    )
    assert second.startswith(f"  at {__file__}:")
    assert second.endswith('raise ValueError("bad thing\\nand more")')
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_call_changes_neither_arguments_nor_buffers():
    model, x = torch.nn.BatchNorm1d(3), torch.rand(4, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert called(model, (x,), {}).shape == (4, 3)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_numbers_count_where_they_are_asked_for():
    outputs = {"a": torch.ones(2), "b": 3, "c": None, "d": [True, "text"]}
    assert [t.tolist() for t in numbers_of(outputs)] == [[1, 1]]
    assert [t.tolist() for t in numbers_of(outputs, also_plain=True)] == [[1, 1], 3, True]


def test_modules_that_return_one_tensor(small):
    watched = watch_modules(small.module, small.args, {})
    paths = {path for path, _ in small.module.named_modules()}
    assert watched.single == paths - {"", "blocks"}
    assert watched.outputs == ("logits", "top")
    assert (watched.drops, watched.draws, watched.changing) == (set(), False, set())


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.twice, self.once = torch.nn.Dropout(), torch.nn.Dropout()
        self.before, self.after = torch.nn.Tanh(), torch.nn.Tanh()

    def forward(self, x):
        y = self.before(x)
        return self.after(self.once(y)), y, self.twice(self.twice(y))


def test_what_is_random_is_found():
    x = torch.rand(50)
    before = torch.get_rng_state()
    watched = watch_modules(Noisy(), (x,), {})
    assert torch.equal(before, torch.get_rng_state())
    assert watched.drops == {"once"}
    assert watched.draws  # a dropout that is called twice is not known for what it draws
    assert watched.changing == {"once", "twice", "after", "output:0", "output:2"}
    assert not watch_modules(Noisy().eval(), (x,), {}).changing


def test_every_run_draws_the_same_numbers():
    model, x = Noisy(), torch.rand(50)
    first = dict(trace_modules(model, (x,), {}, {"once", "after", ""}, budget=1))
    torch.testing.assert_close(first["once"].tanh(), first["after"])
    assert torch.equal(first["after"], first[""])


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # a FutureWarning from torch 2.14 on
def test_a_scripted_module_takes_no_hooks_and_is_seen_as_a_whole():
    inner = torch.jit.script(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout()))
    for model in (inner, torch.nn.Sequential(inner)):
        watched = watch_modules(model, (torch.rand(40),), {})
        assert watched.outputs == ("output",)
        assert watched.draws
        assert "output:0" in watched.changing
        found = dict(trace_modules(model, (torch.rand(3),), {}, {"", "0"}))
        assert found[""].shape == (3,)
