from pathlib import Path

import pytest
import torch

from torchferry.converter import convert
from torchferry.converter.provenance import SOURCE_KEY, module_of, provenance, user_line

TORCH = str(Path(torch.__file__).parent)


class Block(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)  # block


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x) * 3


def frame(file, line):
    return f'File "{file}", line {line}, in forward\n    x = x + 1'


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (None, None),
        ("", None),
        ("no frames here", None),
        (frame("/me/model.py", 3), "/me/model.py:3"),
        (frame("/me/model.py", 3) + "\n" + frame("/me/layer.py", 5), "/me/layer.py:5"),
        (frame("/me/model.py", 3) + "\n" + frame(f"{TORCH}/nn/x.py", 5), "/me/model.py:3"),
        (frame(f"{TORCH}/nn/x.py", 5), None),
        (frame(f"{TORCH}vision/ops.py", 5), f"{TORCH}vision/ops.py:5"),
    ],
)
def test_the_users_line_is_the_innermost_that_is_not_torchs(trace, line):
    assert user_line(trace) == line


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
