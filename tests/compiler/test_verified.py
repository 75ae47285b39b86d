from __future__ import annotations

import pytest
import torch
from torch import nn

from torchferry.errors import Mismatch, UsageError
from torchferry.judge import Verdict


@torch._dynamo.allow_in_graph
def exported(right, other):
    """What is right, or what is compiled in its place: no tracer looks into it."""
    return right if type(right) is torch.Tensor else other


def compiled(model, **options):
    storage = {}
    given = {"verify": True, "storage": storage, **options}
    return torch.compile(model, backend="torchferry", options=given), storage


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_first_call_at_each_size_is_held_to_pytorch():
    model, storage = compiled(nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval())
    with torch.no_grad():
        for size in (3, 5, 3, 5, 6):
            model(torch.rand(size, 4))
    sizes = [one["sizes"] for one in storage["verdicts"]]
    assert len(sizes) == 4  # the first graph has size 3 alone, the second all three
    assert {one["worst"].kind for one in storage["verdicts"]} == {"equal"}
    assert all(
        isinstance(v, Verdict) for one in storage["verdicts"] for v in one["results"].values()
    )


def test_a_wrong_graph_is_refused_with_the_sentence():
    class Wrong(nn.Module):
        def forward(self, x):
            return x + 1, exported(x * 2, x * 3)

    model, storage = compiled(Wrong())
    with pytest.raises(
        Mismatch, match=r"result 1 of the compiled graph differs from PyTorch's"
    ) as e:
        model(torch.ones(3))
    assert e.value.worst.abs == 1
    assert "called with (3,)" in str(e.value)
    assert storage["verdicts"][0]["results"]["0"].kind == "equal"
    assert torch.compile(Wrong(), backend="torchferry")(torch.ones(3))[1].tolist() == [3, 3, 3]


def test_a_model_that_trains_is_verified_and_its_state_moves_once():
    layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    model, storage = compiled(layers)
    model(torch.rand(6, 4)).sum().backward()
    assert storage["verdicts"][0]["worst"].kind == "random"
    assert layers[1].num_batches_tracked == 1
    assert layers[0].weight.grad is not None


def test_what_is_written_in_place_is_written_once():
    class Adds(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    model, storage = compiled(Adds())
    x = torch.zeros(3)
    assert model(x).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]
    assert storage["verdicts"][0]["worst"].kind == "equal"


def test_the_option_is_yes_or_no():
    with pytest.raises((UsageError, RuntimeError), match="verify='all' must be True or False"):
        compiled(nn.ReLU(), verify="all")[0](torch.ones(2))
