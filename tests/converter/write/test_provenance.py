from pathlib import Path

import torch

from torchferry.converter import convert
from torchferry.converter.write.provenance import SOURCE_KEY, module_of, provenance


class Block(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)  # block


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x) * 3


def test_every_node_says_where_it_comes_from():
    converted = convert(torch.export.export(Model(), (torch.ones(2),)))
    (tanh,) = (node for node in converted.graph if node.op_type == "Tanh")
    number = next(
        i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if text.endswith("  # block")
    )  # fmt: skip
    assert tanh.metadata_props[SOURCE_KEY] == f"{__file__}:{number}"
    assert "block" in tanh.metadata_props["pkg.torch.onnx.name_scopes"]
    assert "Block" in tanh.metadata_props["pkg.torch.onnx.class_hierarchy"]
    assert "tanh" in tanh.metadata_props["pkg.torch.onnx.fx_node"]
    assert "forward" in tanh.metadata_props["pkg.torch.onnx.stack_trace"]
    assert "block" in tanh.metadata_props["namespace"]


def test_a_node_without_a_trace_has_no_source_line():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.ops.aten.relu.default, (x,))
    said = provenance(made)
    assert SOURCE_KEY not in said
    assert said["pkg.torch.onnx.name_scopes"] == "['relu_default']"
    assert module_of(made) is None
