"""Mamba's recurrence over time as one ``scan``.

``mamba_selective_scan`` of mamba, falcon_mamba, jamba and zamba is a Python loop over the
sequence: its length becomes a constant of the graph, and the graph grows with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torchferry.capturer.patching.patch import Patch
from torchferry.seams.pytorch import scan_operator

__all__ = ["PATCHES", "selective_scan"]

_MODELS = ("mamba", "falcon_mamba", "jamba", "zamba")


def selective_scan(  # noqa: PLR0917  (as the function it stands for)
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803  (the names of the interface it stands for)
    B: Tensor,  # noqa: N803  (its name there)
    C: Tensor,  # noqa: N803  (its name there)
    D: Tensor | None = None,  # noqa: N803  (its name there)
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **_: Any,
) -> Any:
    """The selective state-space recurrence of Mamba (https://arxiv.org/abs/2312.00752, §3.2).

    ``state[t] = exp(A dt[t]) state[t-1] + dt[t] B[t] x[t]`` and ``y[t] = C[t] state[t] + D x[t]``,
    then ``y * silu(z)``.

    Args:
        hidden_states: x, shape (batch, channels, time).
        dt: step sizes, as ``hidden_states``.
        A: shape (channels, state size).
        B: shape (batch, state size, time).
        C: as ``B``.
        D: shape (channels,).
        z: the gate, as ``hidden_states``.
        delta_bias: added to ``dt``, shape (channels,).
        delta_softplus: whether ``dt`` goes through softplus.
        return_last_state: also return the state after the last step.

    Returns:
        y, shape (batch, channels, time); with the state (batch, channels, state size) behind it
        when that was asked for.
    """
    if delta_bias is not None:
        dt = dt + delta_bias.to(dt.dtype)[..., None]
    if delta_softplus:
        dt = functional.softplus(dt)
    result, last = _recur(hidden_states, dt, A, B, C)
    if D is not None:
        result = result + hidden_states * D[None, :, None]
    if z is not None:
        result = result * functional.silu(z)
    return (result, last) if return_last_state else result


def _recur(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The states over time, read out, and the last one."""
    # Time comes first: it is what the scan runs over.
    steps = dt.permute(2, 0, 1)[..., None]
    decay = torch.exp(a * steps)
    added = steps * b.permute(2, 0, 1)[:, :, None].float()
    added = added * x.permute(2, 0, 1)[..., None].float()

    def step(state: Tensor, now: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        decay, added, readout = now
        state = decay * state + added
        return state, torch.matmul(state.to(x.dtype), readout[..., None])[..., 0]

    walked = (decay, added, c.permute(2, 0, 1))
    last, outputs = scan_operator()(step, torch.zeros_like(added[0]), walked)
    return outputs.permute(1, 2, 0), last


def _scanned(_: Callable[..., Any]) -> Callable[..., Any]:
    return selective_scan


PATCHES = tuple(
    Patch(
        subject=f"transformers.models.{model}.modeling_{model}.mamba_selective_scan",
        why="the sequence length becomes a constant: it loops over time in Python",
        link="https://pytorch.org/docs/stable/higher_order_ops/index.html",
        replace=_scanned,
        fingerprints=("bd43ee44dcdf",),
    )
    for model in _MODELS
)
"""One a model that has a copy of it."""
