"""Marks in a trace, and what a version of torch without the names does."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.seams import layers
from torchferry.seams.layers import (
    CALL,
    ENTER,
    LEAVE,
    can_repeat,
    constant_of,
    model_tracer,
    name_node,
    without_functions,
)


def test_outside_of_a_trace_there_is_none():
    assert can_repeat()
    assert model_tracer() is None
    assert constant_of(torch.zeros(2)) is None
    with without_functions():
        assert torch.zeros(2).shape == (2,)


def test_a_trace_of_a_model_is_one_and_keeps_marks():
    class Model(torch.nn.Module):
        def forward(self, x):
            found.append(model_tracer())
            ENTER("layers.0")
            y = x + 1
            CALL("layers.0", [y], [0])
            LEAVE("layers.0")
            return x * 2

    found = []
    program = torch.export.export(Model(), (torch.zeros(2),), strict=False)
    assert found[0] is not None
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert [one for one in targets if one in (ENTER, CALL, LEAVE)] == [ENTER, CALL, LEAVE]
    make_fx(lambda x: found.append(model_tracer()) or x + 1)(torch.zeros(2))
    assert found[-1] is None


def test_a_node_gets_a_name_that_stays_its_own():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.relu, (x,))
    name_node(node, "tanh")
    assert node.name == "tanh"
    assert graph.call_function(torch.tanh, (x,)).name != "tanh"


def test_without_the_private_names_nothing_is_repeated(monkeypatch):
    monkeypatch.setattr(layers, "_tracer_class", None)
    assert not can_repeat()
