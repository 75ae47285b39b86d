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


class Scale(nn.Module):
    """A normalisation whose class name says so, and parameters that are given by name."""

    def __init__(self, **parameters: torch.Tensor) -> None:
        super().__init__()
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))


class RMSNorm(Scale):
    pass


class GptOssExperts(Scale):
    pass


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_a_scale_stays_near_its_constant(constant: float) -> None:
    norm = RMSNorm(weight=torch.full((400,), constant))
    draw_weights(norm, seeded(0))
    assert norm.weight.mean().item() == pytest.approx(constant, abs=0.02)
    assert norm.weight.std().item() == pytest.approx(0.1, rel=0.2)


def test_what_a_state_space_model_decays_by_is_kept() -> None:
    before = torch.arange(1.0, 9.0).log().repeat(50, 1)
    model = Scale(A_log=before.clone(), logit_scale=torch.tensor(2.6))
    draw_weights(model, seeded(0))
    assert (model.A_log - before).std().item() == pytest.approx(0.1, rel=0.2)
    assert model.logit_scale.item() == pytest.approx(2.6, abs=0.5)


@pytest.mark.parametrize(
    ("module", "std"),
    [
        (Scale(cls_token=torch.zeros(1, 1, 400)), 1.0),
        (Scale(position_embeddings=torch.zeros(1, 20, 20)), 1.0),
        (Scale(experts=torch.zeros(4, 25, 100)), 0.1),
        (Scale(experts_bias=torch.zeros(4, 100)), 0.1),
        (GptOssExperts(gate_up_proj=torch.zeros(4, 25, 100)), 0.2),
        (nn.EmbeddingBag(20, 20), 1.0),
        (nn.Linear(2, 400), 0.1),  # its bias
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_parameters_by_their_names_and_classes(module: nn.Module, std: float) -> None:
    draw_weights(module, seeded(0))
    drawn = list(module.parameters())[-1]
    assert drawn.std().item() == pytest.approx(std, rel=0.15)


def test_a_parametrized_weight_is_drawn_as_a_whole() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 5, groups=4), dim=2)
    draw_weights(layer, seeded(0))
    assert layer.weight.std().item() == pytest.approx((8 * 5) ** -0.5, rel=0.1)
    assert layer.bias.std().item() == pytest.approx(0.1, rel=0.3)
