from __future__ import annotations

import torch
from torch import nn

from torchferry.capturer import capture
from torchferry.capturer.entry import around_forward
from torchferry.capturer.state.lifted import name_lifted
from torchferry.observer import Observation


class Numpy(nn.Module):
    """What only Dynamo follows, with a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() * 2.0)


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.first, self.second = Numpy(), Numpy()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.lin(x)))


def exported(model: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model, (x,), strict=True)


def test_a_program_of_a_model_with_numpy_runs() -> None:
    model = Holds()
    sets = [((torch.rand(n, 3),), {}) for n in (2, 5)]
    found = capture(model, Observation.from_inputs(model, sets))
    for program in (found.program, found.program.run_decompositions()):
        for (x,), _ in sets:
            torch.testing.assert_close(program.module()(x=x), model(x))


def test_a_name_that_is_taken_is_left_alone() -> None:
    model = Holds()
    model.register_buffer("lifted_0", torch.ones(3))
    x = torch.rand(2, 3)
    with around_forward(model, lambda forward: lambda x: forward(x) + model.lifted_0):
        program = name_lifted(exported(model, x))
    specs = {spec.target for spec in program.graph_signature.input_specs if spec.target}
    assert specs == {"lifted_0", "lifted_1", "lifted_2", "lin.weight", "lin.bias"}
    assert torch.equal(program.module()(x), model(x) + 1)


def test_names_of_attributes_stay() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), Numpy())
    x = torch.rand(2, 3)
    program = exported(model, x)
    before = [spec.target for spec in program.graph_signature.input_specs]
    after = [spec.target for spec in name_lifted(program).graph_signature.input_specs]
    assert "0.running_mean" in before
    assert after == before
