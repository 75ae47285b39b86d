from __future__ import annotations

import dataclasses

import pytest

from torchferry.zoo.family import SIZES, Family


def test_a_row_needs_a_name_and_tasks_only() -> None:
    row = Family("llama", ("text-generation",))
    assert (row.kind, dict(row.sizes), row.images) == ("", {}, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.name = "x"  # type: ignore[misc]  # that it raises is what is tested


def test_sizes_are_small_and_fit_each_other() -> None:
    assert SIZES["hidden_size"] == SIZES["num_attention_heads"] * SIZES["head_dim"] <= 64
    assert SIZES["num_attention_heads"] % SIZES["num_key_value_heads"] == 0
    assert SIZES["num_hidden_layers"] == 2
