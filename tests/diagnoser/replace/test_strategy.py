from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.replace.strategy import CustomOpStrategy, check_strategy, strategy_of
from torchferry.errors import UsageError

NONE, FAILING, ALWAYS, LOCAL = (
    CustomOpStrategy[name] for name in ("NONE", "ONLY_IF_FAILING", "ALWAYS", "LOCAL")
)


@pytest.fixture
def root() -> Piece:
    inner = nn.Sequential(nn.ReLU())
    return build_tree(Piece, nn.ModuleDict({"inner": inner})["inner"])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (True, ALWAYS),
        (False, NONE),
        (LOCAL, LOCAL),
        ({"ReLU": ALWAYS}, ALWAYS),
        ({nn.ReLU: FAILING}, FAILING),
        ({"0": LOCAL, "ReLU": ALWAYS}, LOCAL),  # its place says more than its class
        ({"0:ReLU": LOCAL}, LOCAL),
        ({"Sequential": ALWAYS}, NONE),
        ({}, NONE),
    ],
)
def test_a_piece_is_named_in_many_ways(root: Piece, strategy: Any, expected: Any) -> None:
    check_strategy(strategy, root)
    assert strategy_of(strategy, root.children[0]) is expected


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"ReLUs": ALWAYS}, "did you mean 'ReLU'"),
        ({nn.GELU: ALWAYS}, "there is no module or class"),
        ("always", "give a bool, a CustomOpStrategy"),
        ({"ReLU": "always"}, "'always'"),
        (None, "give a bool"),
    ],
)
def test_what_is_no_strategy_is_refused(root: Piece, strategy: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_strategy(strategy, root)
