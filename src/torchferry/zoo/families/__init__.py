"""The tables: every architecture of the zoo, one row each, one file a kind."""

from __future__ import annotations

from torchferry.zoo.families.audio import AUDIO
from torchferry.zoo.families.decoder import DECODERS
from torchferry.zoo.families.encoder import ENCODERS
from torchferry.zoo.families.everyday import EVERYDAY
from torchferry.zoo.families.multimodal import MULTIMODAL
from torchferry.zoo.families.seq2seq import SEQ2SEQ
from torchferry.zoo.families.vision import VISION
from torchferry.zoo.family import Family, Plain

__all__ = ["FAMILIES", "GROUPS"]

GROUPS: dict[str, tuple[Family | Plain, ...]] = {
    "decoder": DECODERS,
    "encoder": ENCODERS,
    "seq2seq": SEQ2SEQ,
    "vision": VISION,
    "multimodal": MULTIMODAL,
    "audio": AUDIO,
    "everyday": EVERYDAY,
}
"""The tables by kind."""

FAMILIES: dict[str, Family | Plain] = {row.name: row for table in GROUPS.values() for row in table}
"""Every row by its name."""
