"""What is traced again and what is left as it is."""

import pytest
import torch
from op_case import check, export

from torchferry.converter import convert
from torchferry.converter.program.aliasing import graphs_of
from torchferry.converter.program.functional import decomposition, functional
from torchferry.errors import ConversionError

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


def test_a_write_to_an_input_survives_the_second_round():
    """The first round makes it functional and adds two outputs; the second decomposes that."""

    def forward(x, scale, mean, var):
        out = torch.ops.aten._batch_norm_with_update(x, scale, scale, mean, var, 0.1, 1e-5)
        return out[0]

    inputs = torch.randn(2, 3, 4), torch.rand(3), torch.zeros(3), torch.ones(3)
    program = functional(export(forward, inputs), lambda target: "batch_norm" not in str(target))
    kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
    assert kinds == ["USER_INPUT_MUTATION", "USER_INPUT_MUTATION", "USER_OUTPUT"]
    (got,) = program.module()(*(t.clone() for t in inputs))
    torch.testing.assert_close(got, forward(*inputs))


def test_a_second_trace_keeps_sizes_dynamic_that_were_1_in_the_example():
    def function(x):
        y = x.clone()
        y[:, 0] = 0
        y += x
        return y.flatten(1), y[..., 1:] + 1

    def strips(x):
        y = x.clone()
        y[0] = 0
        return y[1:] + 1

    check(function, *[(torch.randn(n, 3, h, w),) for n, h, w in ((1, 4, 4), (2, 8, 6), (3, 1, 1))])
    check(strips, *[(torch.randn(n, 3),) for n in (2, 5, 1)])


def test_what_torch_says_when_it_traces_again_names_the_reason():
    def function(x):
        return torch.func.grad(lambda a: (a**3).sum())(x)

    with pytest.raises(ConversionError, match="torch cannot trace the program again"):
        convert(export(function, (torch.randn(3),)))
