"""Whole models of the zoo: optimized, they compute the same, and a second time nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.observer.naming import input_name
from torchferry.observer.tree import leaves_of
from torchferry.optimizer import optimize
from torchferry.zoo import build, families, names

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers says while it is traced

QUICK = ("mlp", "tiny-llm")
SLOW = [name for name in (*names(), *families()) if name not in QUICK]
LIMIT = 1e-5
"""Of the largest value: float32 sums, added in another order."""


def session(model: ir.Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: ir.Model, calls: list[Mapping[str, Any]]) -> list[list[Any]]:
    one = session(model)
    wanted = [item.name for item in one.get_inputs()]
    return [one.run(None, {name: feeds[name] for name in wanted}) for feeds in calls]


def far(want: Any, got: Any) -> float:
    """The largest difference, of the largest value."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.size == 0 or want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(want, got) else np.inf
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    known = np.isfinite(want)
    if not known.any():
        return 0.0
    return float(np.abs(got - want)[known].max() / max(np.abs(want[known]).max(), 1e-6))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_the_same_numbers_in_fewer_nodes(name: str) -> None:
    entry = build(name)
    seen = Observation.from_inputs(entry.model, [((), inputs) for inputs in entry.input_sets])
    program = capture(entry.model, seen).program
    before = convert(program)
    plain = ir.from_proto(ir.to_proto(before))
    calls = [
        {input_name(path): leaf.numpy() for path, leaf in leaves_of((), inputs).items()}
        for inputs in entry.input_sets
    ]
    wanted = run(plain, calls)
    for patterns in ("default", "default+onnxruntime"):
        model = optimize(ir.from_proto(ir.to_proto(before)), patterns)
        count = len(model.graph)
        assert count <= len(before.graph)
        for want, got in zip(wanted, run(model, calls), strict=True):
            assert [v.name for v in model.graph.outputs] == [v.name for v in plain.graph.outputs]
            differences = [far(a, b) for a, b in zip(want, got, strict=True)]
            assert max(differences) <= LIMIT, (patterns, differences)
        assert len(optimize(model, patterns).graph) == count
