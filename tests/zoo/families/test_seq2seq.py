from __future__ import annotations

from typing import Any

import pytest

from torchferry.zoo import families, variants
from torchferry.zoo.families.seq2seq import SEQ2SEQ
from versions import cache_in

NAMES = families("seq2seq")


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs_and_a_masked_token_matters(name: str, check_runs: Any, how_far: Any) -> None:
    check_runs(name)

    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][1, 3] = 0

    assert how_far(name, mask) > 1e-3


@pytest.mark.parametrize("part", ["self_attention_cache", "cross_attention_cache"])
@pytest.mark.parametrize("name", NAMES)
def test_an_element_of_either_cache_matters(name: str, part: str, how_far: Any) -> None:
    def change(inputs: dict[str, Any]) -> None:
        getattr(cache_in(inputs), part).layers[1].values[0, 1, 2, 1] += 1

    assert how_far(name, change) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_caches_are_as_long_as_what_was_read(name: str, built: Any) -> None:
    for inputs, tokens in zip(built(name).input_sets, (11, 9, 6), strict=True):
        cache = cache_in(inputs)
        assert cache.cross_attention_cache.layers[0].keys.shape[2] == tokens
        assert inputs["encoder_outputs"].last_hidden_state.shape[1] == tokens
        assert cache.self_attention_cache.get_seq_length() > 0


def test_the_encoder_is_built_alone(built: Any) -> None:
    assert {type(built(f"{row.name}/encoder").model).__name__ for row in SEQ2SEQ} == {
        "BartEncoder", "MBartEncoder", "MarianEncoder", "T5Stack",
    }  # fmt: skip
