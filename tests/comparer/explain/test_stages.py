from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from torchferry.comparer.explain import stages
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.errors import ConversionError, RunError
from torchferry.judge.tolerance import Tolerance
from torchferry.optimizer.rules import identity


def allows(expected, difference):
    return Tolerance.inside(torch.float32).allows(difference, expected)


def bisected(small, model=None):
    reference = small.program if model is None else model
    (setting,), _ = set_up(reference, small.onnx, small.args, against="program", runner=Runner())
    expected = small.module(*small.args)
    return list(stages.bisect_stages(setting, expected, allows))


LEVELS = [f"the file, onnxruntime's optimizations: {level}"
          for level in ("none", "basic", "extended", "all")]  # fmt: skip


def test_every_stage_of_a_right_model_is_right(small):
    found = bisected(small)
    names = ["convert", "optimize for onnx", "optimize for onnxruntime", *LEVELS]
    assert [stage.name for stage in found] == names
    assert all(stage.ok and stage.difference.abs < 1e-5 for stage in found)


def test_a_changed_file_is_wrong_at_every_level_and_its_conversion_is_right(small):
    small.spoil(small.node("Gemm"), 1)
    found = {stage.name: stage.ok for stage in bisected(small)}
    assert [name for name, ok in found.items() if not ok] == LEVELS


def test_an_optimization_that_is_wrong_is_named(small, monkeypatch):
    def wrong(model, *, target):
        if target == "onnxruntime":
            small.onnx, kept = model, small.onnx
            small.spoil(small.node("Gemm"), 1)
            small.onnx = kept
        return model

    monkeypatch.setattr(stages, "optimize", wrong)
    bad = [stage.name for stage in bisected(small) if not stage.ok]
    assert bad == ["optimize for onnxruntime"]


def test_a_stage_that_fails_says_why(small, monkeypatch):
    def refuse(program, **options):
        raise ConversionError("cannot write it")

    monkeypatch.setattr(stages, "convert", refuse)
    found = bisected(small)
    assert (found[0].ok, found[0].difference.reason) == (False, "cannot write it")
    assert [stage.name for stage in found[1:]] == LEVELS


def test_a_level_that_fails_says_why(small, monkeypatch):
    def run(self, model, feeds):
        if self.level == "all":
            raise RunError("no kernel")
        return call(self, model, feeds)

    call = Runner.__call__
    monkeypatch.setattr(Runner, "__call__", run)
    found = bisected(small)
    assert [(stage.name, stage.difference.reason) for stage in found if not stage.ok] == [
        (LEVELS[-1], "no kernel")
    ]


def test_the_rewrite_that_is_wrong_is_named(small, monkeypatch):
    monkeypatch.setattr(identity.Neutral, "rewrite", lambda self, b, x: b.Neg(x))
    zero = ir.Value(name="zero", const_value=ir.tensor(np.float32(0)))
    zero.type, zero.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
    small.onnx.graph.register_initializer(zero)
    node = small.node("LayerNormalization")
    add = ir.node("Add", [node.outputs[0], zero], name="plus")
    for user, index in tuple(node.outputs[0].uses()):
        if user is not add:
            user.replace_input_with(index, add.outputs[0])
    small.onnx.graph.insert_after(node, add)
    found = {stage.name: stage for stage in bisected(small, small.onnx.clone())}
    bad = found["optimize for onnx"]
    assert not bad.ok
    assert bad.rule.startswith("Neutral, rewrite ")
    assert found[LEVELS[0]].ok


def test_an_onnx_reference_is_optimized_too(small):
    names = ["optimize for onnx", "optimize for onnxruntime", *LEVELS]
    assert [stage.name for stage in bisected(small, small.onnx)] == names
