"""States of short convolutions: the last inputs, in caches of Mamba, Bamba, LFM2 and the like.

A prompt shorter than the kernel is padded under an if. A trace takes the way of its example, and
the program is right for prompts that are as short, or as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]


def _is_prompt(
    self: Any,
    conv_states: torch.Tensor,
    state_idx: int = 0,
    conv_kernel_size: int | None = None,
    **_: Any,
) -> bool:
    """Whether it is the first call, of a length that is not known."""
    kernel = self.conv_kernel_size[state_idx] or conv_kernel_size
    first = not self.record_past and not self.has_previous_state[state_idx]
    return first and isinstance(kernel, int) and isinstance(conv_states.shape[-1], torch.SymInt)


def _padded(_: Callable[..., Any]) -> Callable[..., Any]:
    def update_conv_state(
        self: Any,
        conv_states: torch.Tensor,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Pad by a whole kernel: left of a prompt a causal convolution has zeros anyway."""
        if not self.is_conv_states_initialized[state_idx]:
            self.lazy_initialization(
                conv_states=conv_states, state_idx=state_idx, conv_kernel_size=conv_kernel_size
            )
        self.has_previous_state[state_idx] = True
        kernel = self.conv_kernel_size[state_idx]
        whole = pad(conv_states, (kernel, 0))
        self.conv_states[state_idx].copy_(whole[..., -kernel:])
        return whole

    return update_conv_state


PATCHES = (
    Patch(
        subject="transformers.cache_utils.LinearAttentionLayer.update_conv_state",
        why="an if on whether the prompt is shorter than the kernel makes the graph right for one "
        "side of it",
        link="https://huggingface.co/docs/transformers/kv_cache",
        replace=_padded,
        silent=True,
        acts=_is_prompt,
        fingerprints=("f69ec8b506fd",),
    ),
)
"""The one."""
