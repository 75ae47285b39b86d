"""Models of the zoo under ``torch.compile``: at each of their sizes they give what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchferry as tf
from families import slow_among
from torchferry import zoo
from torchferry.compiler import onnx_custom_backend
from torchferry.observer import Observation
from torchferry.optimizer import OptimizationOptions
from torchferry.optimizer.kernels import library
from torchferry.values import clone

FEW = ("mlp", "dlrm", "multihead_attention", "convnet", "autoencoder", "embedding_bag")
OTHERS = sorted({*zoo.families(), *zoo.names()} - {*FEW})

pytestmark = pytest.mark.filterwarnings("ignore")  # models warn of their own arguments


def three_sizes(found: Any) -> list[dict[str, Any]]:
    """The model's own sets of inputs, and a larger one where it has but two."""
    sets = list(found.input_sets)
    seen = Observation.from_inputs(found.model, sets)
    largest = {n: max(seen.sizes_of(c).get(n, 1) for c in seen.calls) for n in seen.dynamic_names}
    while len(sets) < 3:
        largest = {name: size + 1 for name, size in largest.items()}
        sets.append(seen.inputs_at(largest)[1])
    return sets


def check(name: str, patterns: str = "default+onnxruntime") -> list[dict[str, Any]]:
    storage: dict[str, Any] = {"instance": []}
    torch._dynamo.reset()

    def backend(module: Any, args: Any) -> Any:
        options = OptimizationOptions(patterns)
        return onnx_custom_backend(module, args, storage=storage, options=options)

    found = zoo.build(name)
    run = torch.compile(found.model, backend=backend)
    with torch.no_grad():
        for given in three_sizes(found):
            expected = found.model(**clone(given))
            difference = tf.max_diff(expected, run(**clone(given)))
            leaves = torch.utils._pytree.tree_leaves(expected)
            sizes = [float(x.abs().max()) for x in leaves if isinstance(x, torch.Tensor)
                     and x.numel() and x.is_floating_point()]  # fmt: skip
            assert float(difference["abs"]) <= 1e-4 * max([1.0, *sizes]), given.keys()
    return storage["instance"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", slow_among(FEW, ["autoencoder", "embedding_bag", "dlrm"]))
def test_a_model_equals_eager_at_every_size(name: str) -> None:
    assert check(name)


@pytest.mark.slow
@pytest.mark.skipif(library.compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["tiny-llm", "tiny-bert", "dlrm"])
def test_kernels_of_our_making_equal_eager(name: str) -> None:
    sessions = check(name, "default+onnxruntime+experimental")
    domains = {node.domain for session in sessions for node in session["onnx"].graph.node}
    assert ("torchferry.kernels" in domains) == (name != "dlrm")


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_models_equal_eager(name: str) -> None:
    check(name)
