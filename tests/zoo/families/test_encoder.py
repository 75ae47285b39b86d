from __future__ import annotations

from typing import Any

import pytest

from torchferry.zoo import families, variants
from torchferry.zoo.families.encoder import ENCODERS

NAMES = families("encoder")


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs_and_a_masked_token_matters(name: str, check_runs: Any, how_far: Any) -> None:
    check_runs(name)

    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][1, 3] = 0

    assert how_far(name, mask) > 1e-3


@pytest.mark.parametrize("name", ["albert", "bert", "electra"])
def test_the_segment_matters(name: str, how_far: Any) -> None:
    def move(inputs: dict[str, Any]) -> None:
        inputs["token_type_ids"][1, 3] = 1

    assert how_far(name, move) > 1e-3


def test_every_encoder_has_the_five_tasks_of_text() -> None:
    assert {len(row.tasks) for row in ENCODERS} == {5}
