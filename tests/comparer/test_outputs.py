"""Outputs that a file has in another order than the model, or that it leaves out."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.align.align import output_places
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.observer import steal_forward


class Returns(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        y = self.first(x)
        return {"hidden": y, "count": x.shape[0], "pooled": (self.second(y), y.exp())}


def file_of(module: torch.nn.Module, x: torch.Tensor, *names: str) -> ir.Model:
    """The exported model with these outputs only, in this order."""
    model = convert(
        torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    )
    values = {str(value.name): value for value in model.graph.outputs}
    model.graph.outputs[:] = [values[name] for name in names]
    model.metadata_props.clear()  # where the arguments stand: those of others have none
    return model


@pytest.mark.parametrize(
    ("ours", "names", "places"),
    [
        (["b", "a"], ["a", "b", "c"], [1, 0]),
        (["1", "2"], ["a", "b"], [0, 1]),
        (["a", "2"], ["a", "b"], [0, 1]),
        (["1"], ["a", "b"], None),
        ([], [], []),
    ],
)
def test_outputs_are_told_by_name_or_else_in_order(ours, names, places):
    values = [ir.Value(name=name) for name in ours]
    assert output_places(ir.Graph([], values, nodes=[]), names) == places


NAMES = [("pooled.1", "hidden", "pooled.0"), ("pooled.0",)]
WITH_NUMBER = ("count", "pooled.1", "pooled.0", "hidden")  # a dump holds it as no tensor


@pytest.mark.parametrize(
    ("names", "against"),
    [
        *((names, against) for names in NAMES for against in ("program", "eager", "dump")),
        (WITH_NUMBER, "program"),
        (WITH_NUMBER, "eager"),
    ],
)
def test_a_file_with_other_outputs_is_compared_by_their_names(names, against, tmp_path):
    module, x = Returns(), torch.randn(3, 4)
    model = file_of(module, x, *names)
    reference, settings = module, {"against": against}
    if against == "dump":
        reference, settings = tmp_path / "calls.safetensors", {}
        with steal_forward(module, None, reference, submodules=True), torch.no_grad():
            module(x)
    found = compare(reference, model, (x,), **settings)
    assert found.ok
    assert list(found.outputs) == list(names)
    node = next(n for n in model.graph if n.outputs[0].name == "pooled.0")
    weight = node.inputs[1]
    weight.const_value = ir.tensor(weight.const_value.numpy() * 2)
    spoiled = compare(reference, model, (x,), **settings)
    assert spoiled.differing == ("pooled.0",)


def test_outputs_without_names_are_compared_in_order_and_fewer_are_refused():
    module, x = Returns(), torch.randn(3, 4)
    model = file_of(module, x, "hidden", "pooled.0", "pooled.1")
    for number, value in enumerate(model.graph.outputs):
        value.name = str(number)
    assert compare(module, model, (x,), against="eager").ok
    assert compare(torch.nn.Sequential(module)[0], model, (x,)).ok
    del model.graph.outputs[1:]
    with pytest.raises(UsageError, match=r"not called as they are \(hidden, count, pooled\.0"):
        compare(module, model, (x,), against="eager")
    with pytest.raises(UsageError, match="3 outputs, the ONNX model only 1"):
        compare(module, model, (x,))
