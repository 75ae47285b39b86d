from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from torchferry.errors import UsageError
from torchferry.zoo.architecture import make_config, make_model, make_plain, model_class
from torchferry.zoo.families import FAMILIES
from torchferry.zoo.families.everyday import EVERYDAY
from torchferry.zoo.family import Family
from torchferry.zoo.weights import seeded


def test_sizes_go_to_a_configuration_under_its_own_names() -> None:
    config = make_config(Family("gpt2", ("text-generation",), sizes={"num_hidden_layers": 1}))
    assert isinstance(config, transformers.GPT2Config)
    assert (config.n_embd, config.n_head, config.n_layer, config.vocab_size) == (32, 4, 1, 99)
    assert not hasattr(config, "num_key_value_heads")


def test_a_row_that_does_not_fit_transformers_is_refused() -> None:
    row = FAMILIES["llama"]
    assert isinstance(row, Family)
    with pytest.raises(UsageError, match=r"LlamaConfig .* has no entry 'hiden_size'"):
        make_config(replace(row, sizes={"hiden_size": 3}))
    with pytest.raises(UsageError, match=r"needs a newer transformers: .* no model type 'llama9'"):
        make_config(replace(row, kind="llama9"))
    with pytest.raises(UsageError, match=r"zoo:llama/fill-mask: transformers .* has no class"):
        model_class(row, "fill-mask", make_config(row))


def test_sizes_that_another_version_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    row = FAMILIES["llama"]
    assert isinstance(row, Family)

    def refuse(self: Any, hidden_size: int = 1) -> None:
        raise ValueError("too odd")

    monkeypatch.setattr("transformers.LlamaConfig.__init__", refuse)
    with pytest.raises(UsageError, match=r"LlamaConfig .* does not take its sizes: too odd"):
        make_config(replace(row, sizes={}))


def test_the_same_generator_gives_the_same_model() -> None:
    row = FAMILIES["mamba"]  # it keeps some of the weights that its class draws
    assert isinstance(row, Family)
    first, second = (make_model(row, "text-generation", seeded(3)).state_dict() for _ in "ab")
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert torch.equal(
        make_plain(EVERYDAY[-1], seeded(1)).state_dict()["head.weight"],
        make_plain(EVERYDAY[-1], seeded(1)).state_dict()["head.weight"],
    )


def test_no_model_is_large() -> None:
    for row in FAMILIES.values():
        if isinstance(row, Family):
            config = make_config(row)
            told = config.get_text_config().to_dict()
            assert told.get("hidden_size", 32) <= 64
            assert not told.get("num_hidden_layers") or told["num_hidden_layers"] <= 2
