from __future__ import annotations

import onnx_ir as ir
import pytest

from torchferry.graph.subgraph import named_subgraphs, subgraphs


def graph(name: str) -> ir.Graph:
    return ir.Graph([], [], nodes=[], name=name)


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ([], []),
        ([ir.AttrInt64("axis", 1), ir.AttrGraph("body", graph("a"))], ["body"]),
        ([ir.AttrGraphs("cases", [graph("a"), graph("b")])], ["cases[0]", "cases[1]"]),
        ([ir.RefAttr("body", "outer", ir.AttributeType.GRAPH)], []),
    ],
    ids=["none", "one", "a list", "a function's parameter"],
)
def test_subgraphs_by_attribute(attributes: list[ir.Attr], names: list[str]) -> None:
    node = ir.Node("test", "Op", [], attributes)
    found = list(named_subgraphs(node))
    assert [name for name, _ in found] == names
    assert list(subgraphs(node)) == [inner for _, inner in found]
    assert [inner.name for inner in subgraphs(node)] == ["a", "b"][: len(names)]
