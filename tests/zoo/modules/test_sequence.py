from __future__ import annotations

import pytest
import torch

from torchferry.zoo.modules.sequence import (
    AttentionPool,
    Bag,
    GatedState,
    Mlp,
    MultiheadSelfAttention,
    Recommender,
    Tagger,
    TemporalConvolution,
    TextClassifier,
)

TOKENS = torch.arange(12).reshape(2, 6)
PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])


@pytest.mark.parametrize(
    ("module", "inputs", "shape"),
    [
        (Mlp(), (torch.ones(2, 16),), (2, 4)),
        (Tagger(), (TOKENS,), (2, 6, 5)),
        (AttentionPool(), (torch.ones(2, 7, 16),), (2, 3, 16)),
        (Recommender(), (torch.ones(2, 5), torch.ones(2, 3, dtype=torch.int64)), (2,)),
        (TemporalConvolution(), (torch.ones(2, 6, 9),), (2, 4, 9)),
        (TemporalConvolution(), (torch.ones(1, 6, 1),), (1, 4, 1)),
    ],
)
def test_shapes(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shape: tuple[int, ...]
) -> None:
    assert module(*inputs).shape == shape


def test_padding_changes_nothing() -> None:
    model = TextClassifier().eval()
    with torch.no_grad():
        padded = model(TOKENS, PADDED)
        short = model(TOKENS[1:, :4], torch.zeros(1, 4, dtype=torch.bool))
    assert torch.allclose(padded[1:], short, atol=1e-6)


def test_attention_is_causal_and_skips_padding() -> None:
    mixed, weights = MultiheadSelfAttention().eval()(torch.randn(2, 6, 16), PADDED)
    assert mixed.shape == (2, 6, 16)
    assert (weights.triu(1) == 0).all()
    assert (weights[1, :, 4:] == 0).all()


def test_convolutions_do_not_look_ahead() -> None:
    model = TemporalConvolution().eval()
    x = torch.randn(1, 6, 20)
    later = x.clone()
    later[..., 12:] += 1
    with torch.no_grad():
        assert torch.equal(model(x)[..., :12], model(later)[..., :12])
        assert not torch.allclose(model(x)[..., 12:], model(later)[..., 12:])


def test_a_state_carries_over() -> None:
    model = GatedState().eval()
    x, state = torch.randn(2, 5, 8), torch.zeros(2, 2, 16)
    with torch.no_grad():
        whole, _ = model(x, state)
        _, between = model(x[:, :3], state)
        rest, _ = model(x[:, 3:], between)
    assert torch.allclose(whole[:, 3:], rest, atol=1e-6)


def test_an_empty_bag_is_zero_before_the_head() -> None:
    model = Bag().eval()
    labels = model(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 2]))
    assert torch.equal(labels[1], model.head.bias)
    assert not torch.equal(labels[2], model.head.bias)
