from __future__ import annotations

import io

import onnx
import pytest
import torch
from torch import nn

from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import Variant, variants
from torchferry.diagnoser.replace.operator import DOMAIN, make_operator
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.errors import UsageError


class Scale(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x.t() * n


@pytest.fixture
def piece() -> Piece:
    made = build_tree(Piece, Scale())
    x = torch.arange(6.0).reshape(2, 3)
    made.add_call((x, 2), {}, x.t() * 2)
    return made


def shape_of(leaves: list[torch.Tensor], number: int) -> tuple[int, ...]:
    return tuple(leaves[0].shape[::-1])


def made_of(piece: Piece, name: str, **options: bool) -> tuple[Variant, object]:
    variant = variants(piece, numbers=True)[0]
    results = [piece.outputs[0]]
    return variant, make_operator(name, variant, piece.model.forward, shape_of, results, **options)


def test_an_operator_computes_what_the_module_does(piece: Piece) -> None:
    _, operator = made_of(piece, "C_computes")
    x = torch.rand(4, 5)
    (got,) = operator([x, 3])
    assert torch.equal(got, x.t() * 3)
    assert got.is_contiguous()


def test_its_outputs_are_no_views_of_its_inputs() -> None:
    made = build_tree(Piece, nn.Identity())
    x = torch.ones(2)
    made.add_call((x,), {}, x)
    variant = variants(made)[0]
    operator = make_operator("C_alias", variant, made.model.forward, lambda x, _: x[0].shape, [x])
    (got,) = operator([x])
    got.zero_()
    assert torch.equal(x, torch.ones(2))


def test_a_name_that_is_taken_gets_a_number(piece: Piece) -> None:
    names = [made_of(piece, "C_taken")[1].name for _ in range(2)]
    assert names == ["C_taken", "C_taken_2"]
    schema = str(getattr(torch.ops, DOMAIN).C_taken_2.default._schema)
    assert schema == f"{DOMAIN}::C_taken_2(Tensor x0, SymInt x1) -> Tensor"


def test_it_is_exported_with_its_shape(piece: Piece) -> None:
    _, operator = made_of(piece, "C_exported")

    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operator([x, 2])[0]

    program = torch.export.export(
        Calls(), (torch.rand(4, 5),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    (node,) = [n for n in program.graph.nodes if n.op == "call_function"]
    assert f"{DOMAIN}.C_exported" in str(node.target)
    assert str(node.meta["val"].shape[0]) == "5"
    x = torch.rand(7, 5)
    assert torch.equal(program.module()(x), x.t() * 2)


def test_the_older_exporter_of_torch_writes_it_by_its_name(piece: Piece) -> None:
    operators = [made_of(piece, "C_traced")[1] for _ in range(2)]  # the second has a number

    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operators[1]([x, 3])[0] + 1

    stream = io.BytesIO()
    with quiet():
        torch.onnx.export(Calls(), (torch.rand(4, 5),), stream, dynamo=False)
    graph = onnx.load_from_string(stream.getvalue()).graph
    (node,) = [node for node in graph.node if node.domain == DOMAIN]
    assert node.op_type == "C_traced"
    assert len(node.input) == 2


def test_a_symbolic_one_takes_no_size_that_varies(piece: Piece) -> None:
    _, operator = made_of(piece, "C_symbolic", symbolic=True)
    with pytest.raises(UsageError, match="no ONNX attribute"):
        operator([torch.rand(2, 3), "three"])


def test_nothing_to_return_is_refused(piece: Piece) -> None:
    variant = variants(piece)[0]
    with pytest.raises(UsageError, match="returns no tensor"):
        make_operator("C_none", variant, piece.model.forward, shape_of, [])
