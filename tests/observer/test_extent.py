from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

from torchferry.dumper import open_dump
from torchferry.observer.extent import bytes_of

BIG = torch.zeros(1000)
ARRAY = np.zeros(10)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (BIG[:10], 40),
        ((BIG[:10], BIG[990:]), 4000),
        ((BIG[990:], BIG[:10], BIG[5]), 4000),
        ((BIG[:10], BIG.clone()[990:]), 80),
        ((BIG[:0], BIG[10:20]), 40),
        (BIG[::100], 40),
        ((BIG[::100], BIG[:1]), 3604),
        (torch.ones(1).expand(1000), 4),
        (torch.ones(1, 3).expand(1000, 3), 12),
        (torch.as_strided(torch.zeros(6), (2, 4), (2, 1)), 24),
        ([torch.zeros(10)] * 3, 40),
        (torch.zeros(4, dtype=torch.bfloat16), 8),
        (torch.zeros(()), 4),
        (torch.zeros(0, 5), 0),
        ((ARRAY[::-2], ARRAY[1:2]), 72),
        ((ARRAY[:2], torch.from_numpy(ARRAY)[1:4]), 32),
        ((ARRAY[:2], torch.from_numpy(ARRAY)[2:4]), 32),
        ((ARRAY[:0], "text", None, 3), 0),
        (np.arange(6).reshape(2, 3).T, 48),
    ],
)
def test_it_is_what_a_dump_takes(value: Any, size: int, tmp_path: Any) -> None:
    with open_dump(tmp_path / "d.safetensors") as dump:
        assert dump.add("x", value) == size
    assert bytes_of(value) == size


def test_tensors_without_data_count_their_elements() -> None:
    with FakeTensorMode():
        fake = torch.zeros(3)
    meta = torch.zeros(3, 3, device="meta")
    assert bytes_of(meta) == 36
    assert bytes_of((meta, fake, meta[1:], torch.zeros(1, device="meta"))) == 36 + 12 + 4


def test_what_has_no_plain_memory_counts_nothing() -> None:
    found: list[int] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        found.append(bytes_of(x))
        return x

    torch.func.vmap(look)(torch.zeros(3, 4))
    torch.func.grad(lambda x: look(x).sum())(torch.zeros(3))
    assert found == [0, 0]
    assert bytes_of((torch.eye(3).to_sparse(), torch.ones(2))) == 8
