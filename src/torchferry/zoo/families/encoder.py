"""Text encoders: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.family import Family
from torchferry.zoo.library import OLDEST

__all__ = ["ENCODERS"]

_TASKS = (
    "feature-extraction",
    "fill-mask",
    "text-classification",
    "token-classification",
    "question-answering",
)


def _encoder(name: str, *, kind: str = "", since: str = OLDEST, **sizes: Any) -> Family:
    return Family(name, _TASKS, kind, sizes, since=since)


ENCODERS = (
    _encoder("albert", embedding_size=16),
    _encoder("bert"),
    _encoder("deberta-v2", relative_attention=True, pos_att_type=["c2p", "p2c"],
             position_biased_input=False, max_relative_positions=16),
    _encoder("distilbert", hidden_dim=48),
    _encoder("electra", embedding_size=16),
    _encoder("modernbert", since="5.0", local_attention=8,
             layer_types=["full_attention", "sliding_attention"],
             cls_token_id=1, sep_token_id=2),
    _encoder("mpnet"),
    _encoder("roberta", pad_token_id=1, bos_token_id=0),
)  # fmt: skip
