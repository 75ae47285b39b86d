import pytest
import torch

import torchferry
from torchferry.capturer.patches.statistics import PATCHES

pytestmark = pytest.mark.filterwarnings("ignore:cov.*degrees of freedom")

BODIES = {
    "cov": torch.cov,
    "columns": lambda x: x.T.cov(correction=0),
    "weights": lambda x: torch.cov(x, fweights=torch.arange(x.shape[1]), correction=2),
    "both weights": lambda x: torch.cov(
        x, fweights=torch.arange(x.shape[1]), aweights=torch.ones(x.shape[1]) * 0.3
    ),
    "corrcoef": torch.corrcoef,
    "one row": lambda x: torch.stack([x[0].cov(), x[0].corrcoef(), x[:1].cov(correction=0)]),
    "integers": lambda x: (x * 9).long().cov(),
}


class Model(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.body = BODIES[name]

    def forward(self, x):
        return self.body(x)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", BODIES)
def test_of_any_size(name):
    model = Model(name).eval()
    sets = [((torch.randn(rows, count),), {}) for rows, count in ((3, 7), (4, 9))]
    program = torchferry.export(model, sets)
    assert program.report.ok, program.report.problems
    for rows, count in ((2, 5), (6, 12), (3, 2)):
        x = torch.randn(rows, count)
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
def test_the_operator_stays_in_the_program(name, captured):
    found = captured(Model(name), [(torch.randn(r, n),) for r, n in ((3, 7), (4, 9))])
    targets = [node.target for node in found.program.graph.nodes if node.op == "call_function"]
    assert targets == [getattr(torch.ops.aten, name).default]
    assert f"torch.ops.aten.{name}.default" in found.patches


def test_the_probe_asks_upstream():
    assert all(patch.needed() for patch in PATCHES)
