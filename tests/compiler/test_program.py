from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch

from torchferry.compiler.program import Feed, Program, Result
from torchferry.compiler.session import TensorSession
from torchferry.compiler.weights import FrozenWeights
from torchferry.errors import RunError

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[N,M] x, int64[1] n) => (float[N,M] y, int64[1] m) { y = Relu(x) m = Add(n, n) }"""


def program(*results: Result, instance: dict[str, Any] | None = None) -> Program:
    session = TensorSession(ir.from_onnx_text(TEXT), ["CPUExecutionProvider"], torch.device("cpu"))
    feeds = [Feed("x", 1), Feed("n", 0, size=True)]
    return Program(feeds, results, session, FrozenWeights((), ()), instance)


X = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])


def test_arguments_and_results_meet_the_session() -> None:
    results = (Result(output=0), Result(output=1, number=True), Result(argument=1),
               Result(constant=7), Result(), Result(output=0, axes=(1, 0)))  # fmt: skip
    y, twice, x, seven, none, turned = program(*results)([3, X])
    torch.testing.assert_close(y, X.relu())
    assert (twice, seven, none) == (6, 7, None)
    assert x is X
    torch.testing.assert_close(turned, X.relu().t())


def test_arguments_that_do_not_lie_in_order_are_copied() -> None:
    y, m = program(Result(output=0), Result(output=1))([1, X.t()])
    torch.testing.assert_close(y, X.t().relu())
    assert m.tolist() == [2]


def test_values_are_kept_on_request() -> None:
    kept: dict[str, Any] = {"inputs": [], "outputs": []}
    run = program(Result(output=0), instance=kept)
    run([1, X])[0].zero_()
    torch.testing.assert_close(kept["inputs"][0][0], X)
    torch.testing.assert_close(kept["outputs"][0][0], X.relu())


def test_what_onnxruntime_does_not_take_is_told() -> None:
    with pytest.raises(RunError, match="onnxruntime failed"):
        program(Result(output=0))([1, X[0]])
