"""Experts as transformers writes them and the converter exports them become one MoE."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from rewriting import run

from families import slow_among
from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.optimizer import optimize
from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.plan import plan_of
from torchferry.optimizer.rules.onnxruntime import moe
from torchferry.optimizer.tally import Tally

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers says while it is traced

HIDDEN, INNER, EXPERTS = 8, 12, 5
BLOCKS = ("mixtral", "qwen3_moe, normalized", "qwen3_moe")


def block(name: str) -> torch.nn.Module:
    """A router and its experts, with weights large enough to tell them apart."""
    sizes = {"hidden_size": HIDDEN, "num_experts_per_tok": 3}
    if name == "mixtral":
        from transformers import MixtralConfig
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock as Block

        config = MixtralConfig(intermediate_size=INNER, num_local_experts=EXPERTS, **sizes)
    else:
        from transformers import Qwen3MoeConfig
        from transformers.models.qwen3_moe.modeling_qwen3_moe import (
            Qwen3MoeSparseMoeBlock as Block,
        )

        config = Qwen3MoeConfig(
            moe_intermediate_size=INNER, num_experts=EXPERTS, norm_topk_prob="," in name, **sizes
        )
    config._experts_implementation = "grouped_mm"
    torch.manual_seed(0)
    made = Block(config).eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return made


@lru_cache
def exported(name: str) -> tuple[torch.nn.Module, Any]:
    """The module, and its model without the rule, as ONNX has it."""
    module = block(name)
    sets = [((torch.randn(a, b, HIDDEN),), {}) for a, b in ((2, 3), (4, 5))]
    model = convert(capture(module, Observation.from_inputs(module, sets)).program)
    return module, ir.to_proto(optimize(model, "default+onnxruntime-MixtureOfExperts"))


def plain(name: str) -> ir.Model:
    return ir.from_proto(exported(name)[1])


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in all_nodes(model)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe, "_LEAST", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", slow_among(BLOCKS, ["qwen3_moe"]))
def test_one_node_with_the_numbers_of_pytorch(name: str) -> None:
    module, _ = exported(name)
    before, after = plain(name), optimize(plain(name), "default+onnxruntime")
    assert "MoE" in types(after)
    assert len(types(after)) <= 10 < len(types(before))
    for shape in ((1, 1), (1, 4), (3, 7), (2, 3)):
        x = torch.randn(*shape, HIDDEN)
        (got,) = run(after, {after.graph.inputs[0].name: x.numpy()})
        want = module(x).detach().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    once = types(after)
    assert types(optimize(after, "default+onnxruntime")) == once


@pytest.mark.usefixtures("small")
def test_no_rows_at_all_and_rows_that_are_no_numbers() -> None:
    before, after = plain("mixtral"), optimize(plain("mixtral"), "default+onnxruntime")
    x = np.random.default_rng(0).normal(size=(1, 4, HIDDEN)).astype(np.float32)
    for row, bad in ((1, np.nan), (2, np.inf)):
        x[0, row, 3] = bad
    outputs = [run(model, {model.graph.inputs[0].name: x})[0] for model in (before, after)]
    assert np.isnan(outputs[0]).any(-1).tolist() == [[False, True, True, False]]
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
    (nothing,) = run(after, {after.graph.inputs[0].name: x[:, :0]})
    assert nothing.shape == (1, 0, HIDDEN)


def declined(model: ir.Model, reason: str) -> None:
    tally, before = Tally(), types(model)
    assert apply_rules(model, moe.RULES, tally) == 0
    assert types(model) == before
    if not reason:  # the pattern itself does not fit
        return
    said = {text for reasons in tally.declined.values() for text in reasons}
    assert any(reason in text for text in said), said


def test_small_experts_stay() -> None:
    declined(plain("mixtral"), "take longer")


def node_of(model: ir.Model, op_type: str, nth: int = 0) -> ir.Node:
    return [node for node in all_nodes(model) if node.op_type == op_type][nth]


def put(model: ir.Model, op_type: str, index: int, content: Any, nth: int = 0) -> None:
    """Another constant as the input of a node."""
    node = node_of(model, op_type, nth)
    value = ir.Value(name="other", const_value=ir.tensor(content, name="other"))
    value.dtype, value.shape = value.const_value.dtype, value.const_value.shape
    model.graph.register_initializer(value)
    node.replace_input_with(index, value)


def read_twice(model: ir.Model) -> None:
    made = node_of(model, "ConcatFromSequence").inputs[0]
    node = ir.node("ConcatFromSequence", [made], {"axis": 0})
    node.outputs[0].name = "again"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.append(node)
    model.graph.outputs.append(node.outputs[0])


def other_rows(model: ir.Model) -> None:
    """The second loop is over other groups than the first."""
    body = node_of(model, "Loop", 1).attributes["body"].as_graph()
    put_ends = ir.Value(name="ends", const_value=ir.tensor(np.arange(EXPERTS + 1), name="ends"))
    model.graph.register_initializer(put_ends)
    for node in body:
        if node.op_type == "Gather" and node.inputs[1] is not body.inputs[0]:
            node.replace_input_with(0, put_ends)


def weights_given(model: ir.Model) -> None:
    body = node_of(model, "Loop", 1).attributes["body"].as_graph()
    gathers = [node for node in body if node.op_type == "Gather"]
    weight = next(node.inputs[0] for node in gathers if node.inputs[1] is body.inputs[0])
    assert weight is not None
    model.graph.inputs.append(weight)


def other_parts(model: ir.Model) -> None:
    """SiLU of a part of the gate only."""
    put(model, "Split", 1, np.array([INNER - 1, INNER + 1]))
    for value, width in zip(node_of(model, "Split").outputs, (INNER - 1, INNER + 1), strict=True):
        value.shape = ir.Shape([value.shape[0], width])


def other_sort(model: ir.Model) -> None:
    node_of(model, "TopK", 1).attributes["sorted"] = ir.AttrInt64("sorted", 0)


def other_type(model: ir.Model) -> None:
    """As where logits are of another type than rows."""
    logits = node_of(model, "Softmax").inputs[0]
    assert logits is not None
    logits.dtype = ir.DataType.FLOAT16


def more_rows(model: ir.Model) -> None:
    """Rows behind those that are routed, which is all that the values say."""
    logits = node_of(model, "Softmax").inputs[0]
    assert logits is not None
    logits.shape = ir.Shape(["fewer", EXPERTS])


CHANGES: dict[str, tuple[Callable[[ir.Model], None], str]] = {
    "read elsewhere": (read_twice, "read elsewhere"),
    "other groups": (other_rows, "over other groups"),
    "weights that are inputs": (weights_given, "not constant"),
    "parts": (other_parts, "two halves"),
    "bins": (lambda m: put(m, "Mul", 1, np.float64(EXPERTS + 1), 1), "other groups"),
    "rows": (lambda m: put(m, "Reshape", 1, np.array([-1, 1, HIDDEN]), -2), "are summed"),
    "turns": (lambda m: put(m, "Loop", 0, np.int64(EXPERTS - 1)), "left out"),
    "no turn": (lambda m: put(m, "Loop", 1, np.bool_(False)), "may not begin"),
    "places": (lambda m: put(m, "ConstantOfShape", 0, np.array([99])), "put back"),
    "unsorted": (other_sort, ""),
    "float16": (other_type, "not float32"),
    "more rows": (more_rows, "more rows"),
    "k": (lambda m: put(m, "Mod", 1, np.int64(2)), "not those of the pairs"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("which", CHANGES)
def test_what_is_not_the_same_stays(which: str) -> None:
    model = plain("mixtral")
    change, reason = CHANGES[which]
    change(model)
    declined(model, reason)


@pytest.mark.usefixtures("small")
def test_other_activations_stay() -> None:
    model = plain("mixtral")
    node = node_of(model, "QuickGelu")
    node.attributes["alpha"] = ir.AttrFloat32("alpha", 1.702)
    declined(model, "no SiLU gate")


def test_only_where_it_was_measured() -> None:
    named = {p: {r.name for s in plan_of("default+onnxruntime", processor=p) for r in s.rules}
             for p in ("CPU", "CUDA")}  # fmt: skip
    assert "MixtureOfExperts" in named["CPU"] - named["CUDA"]
