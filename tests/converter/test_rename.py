"""Names that the user chooses for inputs and outputs."""

import pytest
import torch

import torchferry
from torchferry.errors import UsageError


class Mixes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, x, n, more):
        return {"sum": x * n + more["y"] * self.scale, "same": x, "count": x.shape[0]}


def arguments(batch):
    return torch.rand(batch, 3), batch + 1, {"y": torch.rand(batch, 3)}


@pytest.fixture(scope="module")
def program():
    sets = [arguments(2), arguments(4)]
    return torchferry.export(
        Mixes(), sets, progress=False, input_names=["image", "scale", "x"],
        output_names={"count": "batch"},
    )  # fmt: skip


def test_all_in_order_or_some_by_name(program, tmp_path):
    assert program.report.ok, program.report.problems
    names = [value.name for value in program.model.graph.inputs]
    assert names == ["image", "scale", "x"]
    outputs = [value.name for value in program.model.graph.outputs]
    assert outputs[-1] == "batch"
    assert "scale" not in program.model.graph.initializers  # the weight has another name now
    program.save(tmp_path / "model.onnx")
    given, model = arguments(5), Mixes()
    for one in (program, torchferry.load(tmp_path / "model.onnx")):
        got, want = one(*given), model(*given)
        assert got["count"] == want["count"] == 5
        torch.testing.assert_close(got["sum"], want["sum"])
        torch.testing.assert_close(got["same"], want["same"])


def test_of_a_conversion():
    named = torchferry.to_onnx(
        torch.nn.Linear(3, 2), (torch.rand(2, 3),), input_names=["features"]
    )
    assert [value.name for value in named.model.graph.inputs] == ["features"]
    assert named(torch.zeros(2, 3)).shape == (2, 2)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"input_names": ["a"]}, "input_names has 1 names for 3: the inputs are x, n, more"),
        ({"input_names": "abc"}, "input_names has 3 names for 3"),
        ({"input_names": {"z": "a"}}, "no input is called z: the inputs are x, n, more"),
        ({"input_names": ["a", "a", "b"]}, "each input needs a name of its own: a, a, b"),
        ({"output_names": {"sum": ""}}, "each output needs a name of its own"),
        ({"output_names": {"sum": "x"}}, "an input and an output would both be called x"),
    ],
)
def test_what_cannot_be(names, says):
    with pytest.raises(UsageError, match=says):
        torchferry.export(
            Mixes(), [arguments(2), arguments(4)], progress=False, check=False, **names
        )
