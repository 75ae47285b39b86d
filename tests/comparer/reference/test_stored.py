from __future__ import annotations

import onnxruntime
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.reference.stored import holds_dump, keep_values, of_dump
from torchferry.comparer.run.piece import Runner
from torchferry.converter import convert
from torchferry.dumper import open_dump, read_dump
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.observer import steal_forward


def dumped(small, path, *calls, model=None):
    with steal_forward(model or small.module, None, path, submodules=True), torch.no_grad():
        for args in calls or [small.args]:
            small.module(*args)
    return path


@pytest.mark.parametrize("name", ["calls.safetensors", "calls.onnx", "calls"])
def test_a_right_model_agrees_with_a_dump_of_any_form(small, tmp_path, name):
    path = dumped(small, tmp_path / name)
    found = compare(path, small.onnx)
    assert found.ok
    assert {row.origin for row in found.rows} == {
        "blocks.0", "blocks.0.act", "blocks.0.linear", "blocks.0.norm", "blocks.1",
        "blocks.1.act", "blocks.1.linear", "blocks.1.norm", "output:0", "output:1",
    }  # fmt: skip


def test_nothing_of_the_reference_is_run(small, tmp_path, monkeypatch):
    path = dumped(small, tmp_path / "calls.safetensors")
    monkeypatch.setattr(type(small.module), "forward", None)
    assert compare(path, small.onnx).ok


def test_a_fault_is_found_against_a_dump(small, tmp_path):
    path = dumped(small, tmp_path / "calls.safetensors")
    small.spoil(small.node("LayerNormalization", 1), 1)
    found = compare(path, small.onnx, feed="torch")
    assert found.first.origin == "blocks.1.norm"
    assert found.differing == ("logits",)


def test_a_name_that_the_model_was_given_is_taken_away(small, tmp_path):
    path = dumped(small, tmp_path / "calls.safetensors", model=("net", small.module))
    assert "blocks.1.norm" in {row.origin for row in compare(path, small.onnx).rows}


def test_of_several_calls_the_first_that_fits_is_compared(small, tmp_path):
    calls = [(torch.zeros(7, 6),), small.args, (torch.ones(3, 6),)]
    path = dumped(small, tmp_path / "calls.safetensors", *calls)
    feeds, _ = of_dump(path, small.onnx)
    assert torch.equal(feeds["x"], small.args[0])
    assert compare(path, small.onnx).ok
    path = dumped(small, tmp_path / "others.safetensors", (torch.zeros(7, 6),))
    with pytest.raises(UsageError, match="input x has shape 7x6, but the model takes 3x6"):
        compare(path, small.onnx)


def test_a_dump_of_a_run_on_other_inputs_is_refused(small, tmp_path):
    calls = [(torch.zeros(3, 6),), small.args]
    path = dumped(small, tmp_path / "calls.safetensors", *calls)
    assert compare(path, small.onnx, small.args).ok
    feeds, _ = of_dump(path, small.onnx, (small.args, {}))
    assert torch.equal(feeds["x"], small.args[0])
    with pytest.raises(UsageError, match="on other inputs than those that were given"):
        compare(path, small.onnx, (torch.rand(3, 6),))
    values = tmp_path / "values.safetensors"
    compare(small.program, small.onnx, keep=values)
    assert compare(values, small.onnx, small.args).ok
    with pytest.raises(UsageError, match="on other inputs than those that were given"):
        compare(values, small.onnx, (torch.rand(3, 6),))


def test_places_that_cannot_be_written_are_refused_before_anything_is_run(small, tmp_path):
    for options in ({"keep": tmp_path / "no" / "v"}, {"cut": tmp_path / "no" / "c.onnx"}):
        with pytest.raises(UsageError, match="no folder"):
            compare(None, None, **options)


def test_some_modules_alone_need_inputs(small, tmp_path):
    inner = ("blocks.1", small.module.blocks[1])
    path = dumped(small, tmp_path / "calls.safetensors", model=inner)
    found = compare(path, small.onnx, small.args)
    assert found.ok
    assert {row.origin for row in found.rows} == {
        "blocks.1", "blocks.1.act", "blocks.1.linear", "blocks.1.norm",
    }  # fmt: skip
    assert found.notes == ("logits, top: nothing in the reference to compare with",)
    with pytest.raises(UsageError, match="does not hold the inputs of the model itself"):
        compare(path, small.onnx)
    with open_dump(tmp_path / "part.safetensors") as dump:
        dump.add(("blocks.1.norm", 0, "O"), torch.zeros(3, 6))
    with pytest.raises(UsageError, match="does not hold the inputs of the model itself"):
        compare(tmp_path / "part.safetensors", small.onnx)


def test_a_dump_of_something_else_is_refused(small, tmp_path):
    with open_dump(tmp_path / "other.safetensors") as dump:
        dump.add("tensor", torch.zeros(2))
    with pytest.raises(UsageError, match="holds no calls of modules"):
        compare(tmp_path / "other.safetensors", small.onnx)


def test_a_dump_is_told_from_a_model(small, tmp_path):
    assert holds_dump(dumped(small, tmp_path / "calls"))
    assert holds_dump(dumped(small, tmp_path / "calls.onnx"))
    io.save(small.onnx, tmp_path / "model.onnx")
    assert not holds_dump(tmp_path / "model.onnx")
    assert not holds_dump(tmp_path)


def test_what_another_onnxruntime_computed_is_a_reference(small, tmp_path):
    path = tmp_path / "values.safetensors"
    found = compare(small.program, small.onnx, keep=path)
    assert found.ok
    stored = read_dump(path)
    assert torch.equal(stored["", 0, "I"][1]["x"], small.args[0])
    assert len(stored) == 1 + sum(len(node.outputs) for node in small.onnx.graph)
    again = compare(path, small.onnx)
    assert again.ok
    assert again.unaligned == 0
    changed = convert(small.program)
    small.onnx = changed
    name = small.spoil(small.node("LayerNormalization", 1), 1)
    assert compare(path, changed).suspects == (name,)


def test_values_are_kept_at_the_level_that_is_asked_for(small, tmp_path):
    seen = []

    class Watching(Runner):
        def __call__(self, model, feeds):
            seen.append(self.level)
            return super().__call__(model, feeds)

    keep_values(small.onnx, {"x": small.args[0]}, Watching("all"), tmp_path / "v.safetensors")
    assert set(seen) == {"all"}


# Two sessions of onnxruntime -------------------------------------------------------------------


def test_one_model_is_compared_with_itself_at_two_levels(small, monkeypatch):
    seen = []
    run = Runner.__call__

    def watched(self, model, feeds):
        seen.append((self.level, *self.providers))
        return run(self, model, feeds)

    monkeypatch.setattr(Runner, "__call__", watched)
    found = compare(small.onnx, small.onnx, small.args, level="all", against="basic")
    assert found.ok
    assert {level for level, _ in seen} == {"all", "basic"}
    seen.clear()
    assert compare(small.onnx, small.onnx, small.args, against="CPUExecutionProvider").ok
    assert seen[0] == ("none", "CPUExecutionProvider")


def test_a_provider_that_is_not_here_is_refused(small):
    with pytest.raises(UsageError, match="no provider 'NoneExecutionProvider' here: choose from"):
        compare(small.onnx, small.onnx, small.args, against="NoneExecutionProvider")
    assert "NoneExecutionProvider" not in onnxruntime.get_available_providers()
    with pytest.raises(UsageError, match="as program or in eager mode, not 'basic'"):
        compare(small.module, small.onnx, small.args, against="basic")
