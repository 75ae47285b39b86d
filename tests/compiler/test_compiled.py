from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.compiler import compiled
from torchferry.compiler.compiled import CompiledGraph
from torchferry.compiler.record import Settings
from torchferry.errors import LoweringFailed, RunError


def traced(function: Callable[..., Any], *args: Any) -> fx.GraphModule:
    module: fx.GraphModule = make_fx(function, tracing_mode="fake")(*args)
    return module


def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = (x @ w).relu()
    z = y.sin().exp()
    return z.cos() + 1, y


X, W = torch.randn(2, 3), torch.randn(3, 3)


def test_a_graph_is_called_with_a_list() -> None:
    storage: dict[str, Any] = {}
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20, storage=storage))
    torch.testing.assert_close(tuple(graph([X, W])), chain(X, W))
    assert graph.boxed._boxed_call is True  # type: ignore[attr-defined]  # AOTAutograd's mark
    torch.testing.assert_close(tuple(graph.boxed([X, W])), chain(X, W))
    assert len(storage["instance"]) == 1
    assert storage["instance"][0]["input_names"] == ["x_1"]


def test_a_graph_that_computes_nothing_has_no_session(caplog: Any) -> None:
    storage: dict[str, Any] = {}
    module = traced(lambda x, w: (w, x, x.detach(), None), X, W)
    w, x, detached, none = CompiledGraph(module, (), Settings(20, storage=storage))([X, W])
    assert w is W
    assert x is X
    assert detached.data_ptr() == X.data_ptr()
    assert none is None
    assert not storage
    assert "eager" not in caplog.text


def test_sets_of_weights_get_a_session_each() -> None:
    storage: dict[str, Any] = {}
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20, storage=storage))
    sets = [torch.randn(3, 3) for _ in range(3)]
    for weight in [*sets, *sets]:
        torch.testing.assert_close(tuple(graph([X, weight])), chain(X, weight))
    assert len(storage["instance"]) == 3


def test_an_operator_that_cannot_be_written_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    translate = compiled.translate

    def refusing(module: fx.GraphModule, *args: Any) -> Any:
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                raise LoweringFailed(f"cannot convert {node.name}", node=node.name)
        return translate(module, *args)

    monkeypatch.setattr(compiled, "translate", refusing)
    storage: dict[str, Any] = {}
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20, storage=storage))
    for _ in range(2):
        torch.testing.assert_close(tuple(graph([X, W])), chain(X, W))
    assert "aten.sin.default (1x) runs in eager: cannot convert sin" in caplog.text
    operators = [{n.op_type for n in i["onnx"].graph.node} for i in storage["instance"]]
    assert len(operators) == 2
    assert not any("Sin" in names for names in operators)
    # the weight is frozen into the piece that reads it
    assert [len(i["input_names"]) for i in storage["instance"]] == [1, 1]


def test_a_graph_that_cannot_be_loaded_runs_in_eager(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def refusing(*_: Any, **__: Any) -> Any:
        raise RunError("onnxruntime refuses the graph")

    monkeypatch.setattr(compiled, "TensorSession", refusing)
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20))
    torch.testing.assert_close(tuple(graph([X, W])), chain(X, W))
    assert "a graph runs in eager: onnxruntime refuses the graph" in caplog.text


def test_a_call_that_onnxruntime_fails_in_runs_in_eager(caplog: Any) -> None:
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20))
    graph([X, W])
    wide = torch.randn(5, 3)  # the graph was traced for 2 rows
    for _ in range(2):
        torch.testing.assert_close(tuple(graph([wide, W])), chain(wide, W))
    assert caplog.text.count("runs in eager for some inputs") == 1


def test_bfloat16_computes_in_float32_where_there_is_no_kernel() -> None:
    storage: dict[str, Any] = {}
    x, w = X.bfloat16(), W.bfloat16()
    module = traced(lambda x, w: ((x @ w).relu(),), x, w)
    graph = CompiledGraph(module, [1], Settings(20, storage=storage))
    torch.testing.assert_close(graph([x, w])[0], (x @ w).relu(), atol=1e-2, rtol=1e-2)
    assert "Cast" in {node.op_type for node in storage["instance"][0]["onnx"].graph.node}


def test_an_operator_that_onnxruntime_refuses_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    session = compiled.TensorSession

    def refusing(model: Any, *args: Any, **named: Any) -> Any:
        for node in model.graph:
            if node.op_type == "Sin":
                raise RunError("onnxruntime refuses the graph: no Sin", node=node.name)
        return session(model, *args, **named)

    monkeypatch.setattr(compiled, "TensorSession", refusing)
    storage: dict[str, Any] = {}
    graph = CompiledGraph(traced(chain, X, W), [1], Settings(20, storage=storage))
    torch.testing.assert_close(tuple(graph([X, W])), chain(X, W))
    assert "aten.sin.default (1x) runs in eager: onnxruntime refuses the graph" in caplog.text
    assert storage["instance"]
