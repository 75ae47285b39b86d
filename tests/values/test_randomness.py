from __future__ import annotations

import pytest
import torch

from torchferry.values.randomness import random_kept


def test_what_is_drawn_inside_does_not_count_outside():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with pytest.raises(RuntimeError, match="shape"), random_kept():
        torch.rand(7).view(2)
    assert torch.equal(torch.rand(2), expected)


def test_a_block_may_begin_where_another_did():
    state = torch.get_rng_state()
    with random_kept(state):
        first = torch.rand(2)
    with random_kept():
        torch.manual_seed(99)
        with random_kept(state):
            assert torch.equal(torch.rand(2), first)
