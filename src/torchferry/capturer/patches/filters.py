"""torchaudio's recursive filters as one ``scan``: ``lfilter``, all biquads, de-emphasis.

Upstream calls an operator that writes into its argument without saying so, or loops over samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patching.patch import Patch
from torchferry.seams.pytorch import scan_operator

__all__ = ["PATCHES", "filter_recursively"]


def filter_recursively(waveform: Tensor, a_coeffs_normalized: Tensor) -> Tensor:
    """The all-pole filter ``y[t] = x[t] - sum(a[k] y[t - k] for k >= 1)``, from rest.

    Args:
        waveform: x, shape (batch, channels, samples).
        a_coeffs_normalized: a, shape (channels, order + 1); a[0] is 1.

    Returns:
        y, as ``waveform``.
    """
    if a_coeffs_normalized.shape[1] == 1:
        return waveform

    def step(state: tuple[Tensor, Tensor], now: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        past, weights = state  # the newest first; what does not change comes along
        value = now - (past * weights).sum(-1)
        past = torch.cat([value[..., None], past[..., :-1]], -1)
        return (past, weights.clone()), value.clone()

    samples = waveform.permute(2, 0, 1).contiguous()  # a scan runs over the first axis
    weights = a_coeffs_normalized[:, 1:].to(waveform.dtype).contiguous()
    past = waveform.new_zeros((*waveform.shape[:2], weights.shape[1]))
    _, values = scan_operator()(step, (past, weights), samples)
    filtered: Tensor = values.permute(1, 2, 0)
    return filtered


def _replace(_: Callable[..., Any]) -> Callable[..., Any]:
    return filter_recursively


PATCHES = (
    Patch(
        subject="torchaudio.functional.filtering.DifferentiableIIR.ts_apply",
        why="an operator of torchaudio's own walks the samples, and writes unsaid",
        link="https://pytorch.org/docs/stable/higher_order_ops/index.html",
        replace=_replace,
        fingerprints=("55a36cd119e7",),
    ),
)
"""All of them."""
