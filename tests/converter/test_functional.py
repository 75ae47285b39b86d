"""What is traced again and what is left as it is."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.functional import decomposition, functional, graphs_of

aten = torch.ops.aten


def in_place(x):
    y = x.clone()
    y[:, 0] = 5.0
    y.mul_(2)
    return y.view(-1)


X = [(torch.randn(2, 3),), (torch.randn(4, 3),)]


def test_writes_to_what_was_made_on_the_way():
    program = export(in_place, *X)
    assert any(node.target is aten.mul_.Tensor for node in program.graph.nodes)
    after = functional(program, lambda _: True)
    for graph in graphs_of(after):
        for node in graph.nodes:
            schema = getattr(node.target, "_schema", None)
            assert schema is None or not schema.is_mutable
    check(in_place, *X)


def test_a_program_in_form_is_left_as_it_is():
    program = export(lambda x: torch.nn.functional.gelu(x) + 1, *X)
    assert functional(program, lambda _: True) is program


def test_only_unknown_operators_are_decomposed():
    program = export(lambda x: torch.nn.functional.silu(torch.nn.functional.gelu(x)), *X)
    after = functional(program, lambda target: target is not aten.silu.default)
    targets = {node.target for node in after.graph.nodes}
    assert aten.silu.default not in targets
    assert aten.gelu.default in targets
    assert aten.silu.default in {node.target for node in program.graph.nodes}


def test_what_torch_cannot_decompose():
    assert decomposition(aten._linalg_svd.default) is None
    assert decomposition(aten.silu.default) is not None


@pytest.mark.parametrize("view", [lambda y: y[0], lambda y: y.transpose(0, 1), lambda y: y[:, 1:]])
def test_a_write_through_a_view(view):
    def function(x):
        y = x * 1
        view(y).add_(1)
        return y

    check(function, *X)
