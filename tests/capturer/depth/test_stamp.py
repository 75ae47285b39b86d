"""Nodes of a layer that stand where another one is: names, scopes, lines, and what is refused."""

import pytest
import torch
from tests.support.identical_layers import Layer, Stack

from torchferry.capturer import capture
from torchferry.capturer.depth.repeat import Repeats
from torchferry.capturer.depth.stamp import NotStamped, stamp_layers
from torchferry.observer import Observation
from torchferry.seams.layers import CALL, ENTER, GIVEN, LAYER, LEAVE


def traced(model):
    with torch.no_grad(), Repeats(model).watching():
        return torch.export.export(model, (torch.randn(3, 4),), strict=False)


def test_nodes_have_the_names_scopes_and_lines_of_a_whole_trace():
    model = Stack([Layer(index) for index in range(4)]).eval()
    seen = Observation.from_inputs(model, [((torch.randn(size, 4),), {}) for size in (2, 3)])
    nodes = [
        [
            (node.name, str(node.args), list(node.meta.get("nn_module_stack", {}).items()),
             node.meta.get("stack_trace"), str(getattr(node.meta.get("val"), "shape", None)))
            for node in capture(model, seen, settle=False, repeat=repeat).program.graph.nodes
        ]
        for repeat in (True, False)
    ]  # fmt: skip
    assert nodes[0] == nodes[1]


def test_marks_are_gone_and_the_program_is_whole():
    model = Stack([Layer(index) for index in range(3)]).eval()
    program = traced(model)
    targets = [node.target for node in program.graph.nodes]
    assert targets.count(ENTER) == 3
    assert targets.count(LAYER) == 2
    assert GIVEN in targets
    assert CALL in targets
    assert LEAVE in targets
    stamp_layers(program)
    program.validate()
    program.graph.lint()
    assert not {CALL, ENTER, GIVEN, LAYER, LEAVE} & {node.target for node in program.graph.nodes}
    x = torch.randn(3, 4)
    torch.testing.assert_close(program.module()(x), model(x))
    later = program.graph.call_function(torch.ops.aten.relu.default)
    assert [node.name for node in program.graph.nodes].count(later.name) == 1


def test_a_program_without_layers_stays():
    program = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(3, 4),))
    before = str(program.graph)
    stamp_layers(program)
    assert str(program.graph) == before


def test_a_layer_that_takes_something_unknown_is_refused():
    program = traced(Stack([Layer(index) for index in range(3)]).eval())
    x = next(node for node in program.graph.nodes if node.name == "x")
    for node in list(program.graph.nodes):
        if node.target is GIVEN and node.args[1] is x:
            program.graph.erase_node(node)
    with pytest.raises(NotStamped, match=r"uses x, which layers\.0 was not seen to take"):
        stamp_layers(program)
