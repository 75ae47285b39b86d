from __future__ import annotations

import logging
from typing import Any

import pytest
from rewriting import parse

from torchferry.errors import UsageError
from torchferry.optimizer import OptimizationOptions, Tally

TEXT = "g (float[N,3] x) => (float[N,3] y) { a = Identity(x) y = Relu(a) }"


@pytest.mark.parametrize(
    ("patterns", "nodes"),
    [(None, 2), ("", 2), ("default", 1), ("default-Identity", 2), (["Identity"], 1)],
)
def test_patterns(patterns: Any, nodes: int) -> None:
    assert len(OptimizationOptions(patterns).apply(parse(TEXT)).graph) == nodes


def test_experimental_is_not_silent(caplog: Any) -> None:
    options = OptimizationOptions("default+experimental", verbose=1)
    caplog.set_level(logging.INFO, "torchferry")
    assert len(options.apply(parse(TEXT)).graph) == 1
    assert "no fused element-wise kernel yet" in caplog.text
    assert "2 nodes became 1" in caplog.text
    assert "Identity: 1" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"patterns": "onnxrutime"}, "unknown patterns 'onnxrutime': choose onnxruntime"),
        ({"processor": "TPU"}, "unknown processor 'TPU'"),
        ({"max_iter": -3}, "max_iter=-3"),
    ],
)
def test_what_does_not_exist_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OptimizationOptions(**wrong)


def test_combinations_that_exist() -> None:
    OptimizationOptions(patterns=None, constant_folding=False)
    OptimizationOptions("default", constant_folding={"Neg"}, processor="CPU,CUDA", max_iter=3)
    tally = Tally()
    OptimizationOptions("default", constant_folding=False).apply(parse(TEXT), tally)
    assert tally.applied == {"Identity": 1}
