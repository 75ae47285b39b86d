from __future__ import annotations

import logging
from typing import Any

import onnx_ir as ir
import pytest

from torchferry.errors import UsageError
from torchferry.optimizer.options import OptimizationOptions

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[N,3] x) => (float[N,3] y) { a = Identity(x) y = Relu(a) }"""


@pytest.mark.parametrize(
    ("patterns", "target"),
    [(None, None), ("", None), ("default", "onnx"), ("default+onnxruntime", "onnxruntime")],
)
def test_sets(patterns: str | None, target: str | None) -> None:
    options = OptimizationOptions(patterns)
    assert options.target == target
    model = options.apply(ir.from_onnx_text(TEXT))
    kinds = [node.op_type for node in model.graph]
    assert kinds == (["Relu"] if target else ["Identity", "Relu"])


def test_experimental_is_not_silent(caplog: Any) -> None:
    options = OptimizationOptions("default+onnxruntime+experimental", verbose=1)
    caplog.set_level(logging.INFO, "torchferry")
    assert len(options.apply(ir.from_onnx_text(TEXT)).graph) == 1
    assert "no fused element-wise kernel yet" in caplog.text
    assert "2 nodes became 1" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"patterns": "onnxruntime"}, "unknown patterns 'onnxruntime': choose default,"),
        ({"processor": "TPU"}, "unknown processor 'TPU'"),
        ({"constant_folding": False}, "need constant folding"),
        ({"max_iter": 3}, "max_iter=3 cannot be asked for"),
    ],
)
def test_what_does_not_exist_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OptimizationOptions(**wrong)


def test_combinations_that_exist() -> None:
    OptimizationOptions(patterns=None, constant_folding=False)
    OptimizationOptions("default", processor="CPU,CUDA")
