"""Writes to results that are an argument itself, or a view of it, without their schema's word."""

import pytest
import torch
from op_case import check, export
from torch.nn import functional as F

from torchferry.converter import convert
from torchferry.converter.program.aliasing import aliasing_targets, graphs_of, said
from torchferry.errors import ConversionError

aten = torch.ops.aten

RESULTS = {
    "dropout": lambda y: F.dropout(y, 0.5, training=False),
    "dropout of nothing": lambda y: F.dropout(y, 0.0, training=True),
    "alpha_dropout": lambda y: F.alpha_dropout(y, 0.5, training=False),
    "feature_dropout": lambda y: F.dropout2d(y[None, None], 0.5, training=False)[0, 0],
    "feature_alpha_dropout": lambda y: F.feature_alpha_dropout(y, 0.5, training=False),
    "einsum": lambda y: torch.einsum("ij->ji", y),
    "unsafe_chunk": lambda y: torch.unsafe_chunk(y, 3, dim=1)[0],
    "unsafe_split": lambda y: torch.unsafe_split(y, 2, dim=1)[1],
    "unsafe_split_with_sizes": lambda y: torch.unsafe_split_with_sizes(y, [1, 2], dim=1)[1],
    "sum_to_size": lambda y: y.sum_to_size(y.shape),
    "type_as": lambda y: y.type_as(y),
    "atleast_3d": torch.atleast_3d,
    "cartesian_prod": lambda y: torch.cartesian_prod(y[0]),
    "chain_matmul": torch.chain_matmul,
}


def written(result):
    def function(x):
        y = x + 1
        z = result(y)
        z += 3
        return y * 2, z * y.sum()

    return function


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize("name", RESULTS)
def test_a_write_to_the_result_is_seen_in_the_argument(name):
    check(written(RESULTS[name]), *[(torch.randn(n, 3),) for n in (4, 2, 1)])


def test_in_training_a_dropout_stays_what_it_is():
    program = export(lambda x: F.dropout(x, 0.5, training=True), (torch.randn(2, 3),))
    with said(program):
        assert aten.dropout.default in [n.target for g in graphs_of(program) for n in g.nodes]


def test_the_program_is_left_as_it_was():
    program = export(written(RESULTS["dropout"]), (torch.randn(2, 3),))
    before = str(program.graph)
    with said(program):
        assert "aten.alias" in str(program.graph)
        assert "dropout.default" not in str(program.graph)
    assert str(program.graph) == before


def test_views_that_a_schema_announces_are_not_listed():
    def function(x):
        return x.T + torch.einsum("ij->ji", x) + torch.einsum("ij,ik->jk", x, x).sum()

    assert aliasing_targets(export(function, (torch.randn(3, 3),))) == {aten.einsum.default}


@pytest.mark.parametrize("name", ["dropout", "einsum", "unsafe_chunk", "type_as", "atleast_3d"])
def test_a_write_to_an_input_through_the_result_is_refused(name):
    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(3, 3))

        def forward(self, x):
            z, w = RESULTS[name](x), RESULTS[name](self.state)
            z += 3
            w += 1
            return x * 2

    with pytest.raises(ConversionError, match=r"writes to input x, buffer state, at .*aliasing"):
        convert(export(Writes(), (torch.randn(3, 3),)))
