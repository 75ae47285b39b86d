"""How a rule is tested: graphs in ONNX text, structure compared, numbers compared, run twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.tally import Tally

__all__ = ["SIZES", "changes", "feeds_for", "keeps", "parse", "run", "same_numbers", "structure"]

HEAD = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
SIZES: tuple[Mapping[str, int], ...] = ({}, {"a": 1, "b": 1}, {"a": 0, "b": 3}, {"a": 5, "b": 1})
"""Sizes of named dimensions to run at; a name that is not there is 2."""


def parse(text: str, opset: int = 20) -> ir.Model:
    """A model from the text of its graph, with types and shapes of every value inferred."""
    proto = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    return ir.from_proto(proto)


def feeds_for(model: ir.Model, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Random inputs of a model, their named dimensions as ``sizes`` says."""
    random = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        dims = [d if isinstance(d, int) else sizes.get(str(d.value), 2) for d in value.shape]
        dtype = value.dtype.numpy()
        content = random.normal(size=dims) if np.dtype(dtype).kind == "f" else (
            random.integers(0, 2, size=dims)
        )  # fmt: skip
        feeds[value.name] = content.astype(dtype)
    return feeds


def run(model: ir.Model, feeds: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime makes of the model as it stands."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def structure(model: ir.Model) -> list[Any]:
    """The nodes, what each reads (by place, not by name), and constants by content."""
    place: dict[ir.Value | None, Any] = {None: "-"}
    place |= {value: f"input {i}" for i, value in enumerate(model.graph.inputs)}
    for value in model.graph.initializers.values():
        if value not in place:
            place[value] = np.asarray(value.const_value.numpy()).tolist()
    rows = []
    for number, node in enumerate(model.graph):
        attributes = {
            a.name: a.value if a.type != ir.AttributeType.TENSOR else a.value.numpy().tolist()
            for a in node.attributes.values()
        }
        if node.op_type == "Constant":
            place[node.outputs[0]] = ir.convenience.get_const_tensor(
                node.outputs[0]
            ).numpy().tolist()  # fmt: skip
            continue
        for i, value in enumerate(node.outputs):
            place[value] = ("node", len(rows), i)
        rows.append((node.domain, node.op_type, [place[v] for v in node.inputs],
                     dict(sorted(attributes.items()))))  # fmt: skip
        assert number >= 0
    return [rows, [place[value] for value in model.graph.outputs]]


def same_numbers(
    before: ir.Model, after: ir.Model, sizes: Iterable[Mapping[str, int]] = SIZES, tolerance=1e-5
) -> None:
    """Both models give equal outputs at every size."""
    onnx.checker.check_model(ir.to_proto(after))
    for model in (before, after):
        assert [v.name for v in model.graph.outputs] == [v.name for v in before.graph.outputs]
    for seed, dims in enumerate(sizes):
        feeds = feeds_for(before, dims, seed)
        for want, got in zip(run(before, feeds), run(after, feeds), strict=True):
            assert (want.dtype, want.shape) == (got.dtype, got.shape)
            if want.dtype.kind in "fc":
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(got, want)


def changes(
    rules: Rule | Sequence[Rule], before: str, after: str, *, opset: int = 20,
    sizes: Iterable[Mapping[str, int]] = SIZES, tolerance: float = 1e-5,
) -> ir.Model:  # fmt: skip
    """``before`` becomes ``after``, with the same numbers, and a second pass changes nothing."""
    rules = (rules,) if isinstance(rules, Rule) else rules
    model = parse(before, opset)
    names = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    assert apply_rules(model, rules, Tally()) > 0
    assert structure(model) == structure(parse(after, opset))
    assert names == [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    assert apply_rules(model, rules, Tally()) == 0
    if sizes:
        same_numbers(parse(before, opset), model, sizes, tolerance)
    return model


def keeps(
    rules: Rule | Sequence[Rule], text: str, reason: str | None = None, *, opset: int = 20
) -> None:
    """Nothing is rewritten; if ``reason`` is given, because it was declined for this."""
    rules = (rules,) if isinstance(rules, Rule) else rules
    model, tally = parse(text, opset), Tally()
    before = structure(model)
    assert apply_rules(model, rules, tally) == 0
    assert structure(model) == before
    if reason is not None:
        said = {text for reasons in tally.declined.values() for text in reasons}
        assert any(reason in text for text in said), said
