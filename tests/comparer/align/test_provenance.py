from __future__ import annotations

import onnx_ir as ir
import pytest

from torchferry.comparer.align.provenance import (
    fx_name,
    fx_of,
    layer_of,
    line_of,
    scopes_of,
    uncast,
)


@pytest.mark.parametrize(
    ("name", "scopes"),
    [("/body/lin/MatMul", ("body", "body.lin")), ("/Mul", ()), ("MatMul_3", ())],
)
def test_names_of_the_torchscript_exporter_are_scopes(name, scopes):
    node = ir.node("MatMul", [ir.Value(name="x"), ir.Value(name="y")], name=name)
    assert scopes_of(node) == scopes
    assert layer_of(node) == (scopes or ("",))[-1]


def test_the_line_is_the_users(small):
    node = small.node("LayerNormalization")
    file, _, line = line_of(node).rpartition(":")
    assert file.endswith("conftest.py")
    assert int(line) > 0
    del node.metadata_props["pkg.torchferry.source_line"]
    assert line_of(node) == f"{file}:{line}"  # from the stack trace, as torch.onnx writes it
    node.metadata_props.clear()
    assert line_of(node) == layer_of(node) == ""


def test_scopes_that_cannot_be_read_are_none(small):
    node = small.node("LayerNormalization")
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "[not a list"
    assert layer_of(node) == ""


def test_a_cast_that_says_nothing_comes_from_what_it_casts(small):
    node = small.node("LayerNormalization")
    down = ir.node("Cast", [node.outputs[0]], {"to": ir.DataType.FLOAT16})
    up = ir.node("Cast", [down.outputs[0]], {"to": ir.DataType.FLOAT})
    assert uncast(up) is node
    assert uncast(node) is node
    assert fx_name(down) == "layer_norm"  # it rounds what the node made
    assert fx_name(up) == ""
    assert layer_of(down) == "blocks.0.norm"


def test_an_fx_node_is_read_from_its_text():
    text = (
        "%slice_3 : [num_users=1] = call_function[target=torch.ops.aten.slice.Tensor](args = ())"
    )
    assert fx_of(text) == ("slice_3", "torch.ops.aten.slice.Tensor")
    assert fx_of("no node") == ("", "")
