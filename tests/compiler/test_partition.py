from __future__ import annotations

import logging
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.compiler.partition import obstacles, partition, tell
from torchferry.compiler.views import separate_views


def function(x: torch.Tensor) -> torch.Tensor:
    y = (x @ x).relu() + 1
    values, vectors = torch.linalg.eig(y)
    z = y + values.abs() + vectors.abs()
    return (z + torch.rand_like(z)).sin().cos()


def test_obstacles_are_told(caplog: Any) -> None:
    module = make_fx(function, tracing_mode="fake")(torch.eye(2))
    found = {str(node.target): reason for node, reason in obstacles(module).items()}
    assert found == {
        "aten.linalg_eig.default": "it has no ONNX form",
        "aten.rand_like.default": "it draws PyTorch's random numbers",
    }
    caplog.set_level(logging.INFO, "torchferry")
    tell(obstacles(module))
    levels = {record.levelname: record.getMessage() for record in caplog.records}
    assert levels["WARNING"] == "aten.linalg_eig.default (1x) runs in eager: it has no ONNX form"
    assert levels["INFO"].startswith("aten.rand_like.default (1x) runs in eager")


def test_the_pieces_compute_the_same() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    module = make_fx(function, tracing_mode="fake")(x)
    refused = obstacles(module)
    whole = partition(module, refused)
    pieces = whole.graph.find_nodes(op="call_module")
    assert len(pieces) >= 2
    graphs: list[Any] = [whole.get_submodule(str(piece.target)) for piece in pieces]
    inside = [node.target for graph in graphs for node in graph.graph.nodes]
    assert torch.ops.aten.linalg_eig.default not in inside
    torch.manual_seed(0)
    found = whole(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, function(x))


def test_nothing_is_wrong_with_a_plain_graph() -> None:
    assert obstacles(make_fx(lambda x: x.relu() + 1, tracing_mode="fake")(torch.ones(2))) == {}


def test_results_that_are_views_run_in_pytorch_without_a_word(caplog: Any) -> None:
    module = make_fx(lambda x: (y := x + 1, y[0]), tracing_mode="fake")(torch.ones(2, 3))
    separate_views(module)
    (reason,) = {*(refused := obstacles(module)).values()}
    assert reason == "it makes a result that is a view"
    assert [str(node.target) for node in refused] == ["aten.select.int"]
    caplog.set_level(logging.INFO, "torchferry")
    tell(refused)
    assert not [r for r in caplog.records if r.name == "torchferry"]
