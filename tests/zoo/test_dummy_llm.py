from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.values import string_type
from torchferry.zoo.dummy_llm import dummy_llm

SUBMODULES = """\
- LLM
embedding - Embedding
embedding.embedding - Embedding
embedding.pe - Embedding
decoder - DecoderLayer
decoder.attention - MultiAttentionBlock
decoder.attention.attention - ModuleList
decoder.attention.attention.0 - AttentionBlock
decoder.attention.attention.0.query - Linear
decoder.attention.attention.0.key - Linear
decoder.attention.attention.0.value - Linear
decoder.attention.attention.1 - AttentionBlock
decoder.attention.attention.1.query - Linear
decoder.attention.attention.1.key - Linear
decoder.attention.attention.1.value - Linear
decoder.attention.linear - Linear
decoder.feed_forward - FeedForward
decoder.feed_forward.linear_1 - Linear
decoder.feed_forward.relu - ReLU
decoder.feed_forward.linear_2 - Linear
decoder.norm_1 - LayerNorm
decoder.norm_2 - LayerNorm"""


@pytest.fixture(scope="module")
def model() -> Any:
    return dummy_llm()[0]


def test_it_has_the_submodules_and_sizes_of_the_page(model: Any) -> None:
    named = [f"{name} - {type(m).__name__}".strip() for name, m in model.named_modules()]
    assert "\n".join(named) == SUBMODULES
    assert model.embedding.embedding.weight.shape == (1024, 16)
    assert model.embedding.pe.embedding_dim == 16
    assert not model.training


def test_inputs_and_dynamic_shapes_are_those_of_the_page() -> None:
    model, inputs, shapes = dummy_llm(dynamic_shapes=True)
    assert string_type(inputs, with_shape=True) == "(T7s2x30,)"
    assert string_type(shapes) == "dict(input_ids:{0:Dim(batch),1:Dim(length)})"
    assert string_type(model(*inputs), with_shape=True) == "T1s2x30x16"


def test_no_token_sees_a_later_one(model: Any) -> None:
    ids = torch.arange(12).reshape(2, 6)
    changed = ids.clone()
    changed[0, 4] = 500
    moved = (model(ids) - model(changed)).abs().amax(-1)
    assert torch.equal(moved > 1e-6, torch.tensor([[0, 0, 0, 0, 1, 1], [0] * 6]).bool())


def test_positions_count(model: Any) -> None:
    hidden = model(torch.full((1, 3), 7))
    assert (hidden[0, 0] - hidden[0, 1]).abs().max() > 1e-2


def test_it_exports_dynamic_and_computes_the_same_at_other_sizes() -> None:
    model, inputs, shapes = dummy_llm(dynamic_shapes=True)
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    ids = torch.randint(0, 1024, (5, 256))
    torch.testing.assert_close(program.module()(ids), model(ids))


def test_it_is_the_same_every_time_and_leaves_the_global_generator_alone(model: Any) -> None:
    before = torch.get_rng_state()
    again, inputs = dummy_llm()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(again(*inputs), model(*inputs))
    assert not torch.equal(dummy_llm(seed=1)[0](*inputs), model(*inputs))
