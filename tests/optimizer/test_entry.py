import dataclasses
import inspect

import onnx_ir as ir
import pytest
from rewriting import HEAD, parse

from torchferry.errors import UsageError
from torchferry.optimizer import OptimizationOptions, optimize

TEXT = "g (float[a,3] x) => (float[a,3] y) { t = Identity(x) y = Relu(t) }"


def test_a_model_is_changed_in_place():
    model = parse(TEXT)
    assert optimize(model, "default") is model
    assert [node.op_type for node in model.graph] == ["Relu"]


def test_a_file_stays_as_it_is(tmp_path):
    path = tmp_path / "model.onnx"
    ir.save(ir.from_onnx_text(HEAD.format(opset=20) + TEXT), path)
    before = path.read_bytes()
    assert len(optimize(path, "default").graph) == 1
    assert len(optimize(str(path), None).graph) == 2
    assert path.read_bytes() == before
    with pytest.raises(UsageError, match="there is no file"):
        optimize(tmp_path / "none.onnx")


def test_targets_stand_for_patterns():
    assert len(optimize(parse(TEXT), target="onnx").graph) == 1
    with pytest.raises(UsageError, match="unknown target 'tensorrt'"):
        optimize(parse(TEXT), target="tensorrt")


def test_everything_that_options_take_is_taken(tmp_path):
    folder = tmp_path / "rewrites"
    optimize(
        parse(TEXT), "default", constant_folding=False, processor="CPU,CUDA", verifies=True,
        max_iter=1, verbose=0, dump_applied_patterns=folder,
    )  # fmt: skip
    assert [path.name for path in folder.iterdir()] == ["0001_Identity_before.onnx"]
    names = {field.name for field in dataclasses.fields(OptimizationOptions)}
    assert names <= set(inspect.signature(optimize).parameters)
