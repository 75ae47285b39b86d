from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from torchferry.diagnoser import ModelDiagnoseOutput
from torchferry.diagnoser.rest import write_rest
from torchferry.errors import UsageError


def test_culprits_are_operators_with_names_and_shapes(
    tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    bad = tree.children[0].children[1]
    path = write_rest(tree, [bad], tmp_path / "rest.onnx")
    model = ir.load(path)
    (node,) = [node for node in model.graph if node.domain == "diag_lib"]
    assert node.op_type == "C_Model_b1_bad"
    assert [str(value.shape) for value in node.outputs] == ["[batch_size,8]"]
    assert len(node.inputs) == 2
    assert {value.name for value in model.graph.inputs} == {"x", "mask"}
    assert "diag_lib" in model.opset_imports
    assert len(list(model.graph)) > 3


def test_nothing_is_left_of_a_model_that_is_at_fault_itself(
    tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="nothing would be left"):
        write_rest(tree, [tree], tmp_path / "rest.onnx")
    assert list(tmp_path.iterdir()) == []
