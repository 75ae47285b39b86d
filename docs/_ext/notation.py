"""The notation of values: real values, printed."""

from __future__ import annotations

import numpy as np
import torch
from rst import code, table

import torchferry as tf

__all__ = ["text"]


def text() -> str:
    """A row a value: how it is written in Python, and how it is printed."""
    pair = torch.zeros(2, 4, 3, 7), torch.zeros(2, 4, 3, 7)
    values = [
        ("torch.arange(6.0).reshape(2, 3)", torch.arange(6.0).reshape(2, 3)),
        ("torch.tensor(3.5)", torch.tensor(3.5)),
        ("torch.zeros(0, 3)", torch.zeros(0, 3)),
        ("torch.tensor([False, True])", torch.tensor([False, True])),
        ("torch.arange(8)", torch.arange(8)),
        ("torch.zeros(2, dtype=torch.float16)", torch.zeros(2, dtype=torch.float16)),
        ("np.zeros((2, 3), np.float32)", np.zeros((2, 3), np.float32)),
        ("(torch.ones(2, 8), 3, None)", (torch.ones(2, 8), 3, None)),
        ("[torch.ones(2), torch.ones(2)]", [torch.ones(2), torch.ones(2)]),
        ("{'x': torch.ones(2), 'n': 2.5}", {"x": torch.ones(2), "n": 2.5}),
        ("a DynamicCache of one layer", tf.make_dynamic_cache([pair])),
    ]
    rows = [
        (
            code(source),
            code(tf.string_type(value)),
            code(tf.string_type(value, with_shape=True)),
            code(tf.string_type(value, with_shape=True, with_min_max=True)),
        )
        for source, value in values
    ]
    return table(("value", "plain", "with_shape", "with_shape, with_min_max"), rows, "25 20 25 30")
