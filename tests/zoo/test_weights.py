from __future__ import annotations

import pytest
import torch
from torch import nn

from torchferry.zoo.weights import draw_weights, seeded


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(256, 256), (64, 256)),
        (nn.Conv2d(64, 32, 3), (4, 64, 12, 12)),
        (nn.ConvTranspose2d(64, 32, 3), (4, 64, 12, 12)),
        (nn.LayerNorm(64), (8, 64)),
        (nn.BatchNorm2d(16).eval(), (2, 16, 8, 8)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_unit_input_gives_an_output_of_order_one(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    draw_weights(layer, seeded(0))
    with torch.no_grad():
        output = layer(torch.randn(shape, generator=seeded(1)))
    assert 0.5 < output.std() < 2


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    drawn = []
    for seed in (5, 5, 6):
        layer = nn.Linear(4, 4)
        draw_weights(layer, seeded(seed))
        drawn.append(layer.weight.detach())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_the_global_generator_is_left_alone() -> None:
    layer = nn.Linear(4, 4)
    before = torch.get_rng_state()
    draw_weights(layer, seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_tied_weights_stay_tied_and_are_scaled_for_the_output() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(50, 64), "head": nn.Linear(64, 50)})
    model["head"].weight = model["embedding"].weight
    draw_weights(model, seeded(0))
    assert model["head"].weight is model["embedding"].weight
    assert model["head"].weight.std().item() == pytest.approx(64**-0.5, rel=0.1)


def test_padding_embeds_as_zero() -> None:
    embedding = nn.Embedding(10, 8, padding_idx=3)
    draw_weights(embedding, seeded(0))
    assert embedding.weight[3].abs().max() == 0
    assert embedding.weight[2].abs().min() > 0


def test_running_variances_are_positive() -> None:
    norm = nn.BatchNorm1d(1000)
    draw_weights(norm, seeded(0))
    assert 0.5 <= norm.running_var.min() < norm.running_var.max() <= 1.5
    assert norm.num_batches_tracked == 0


def test_the_dtype_of_a_parameter_stays() -> None:
    layer = nn.Linear(4, 4).to(torch.bfloat16)
    draw_weights(layer, seeded(0))
    assert layer.weight.dtype == torch.bfloat16
