"""Rotary embeddings whose frequencies grow with the sequence (``rope_type: dynamic``)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.capturer.patching.patch import Attribute, Patch, Place
from torchferry.seams.pytorch import buffers_of, set_buffer

__all__ = ["PATCHES"]

_MODULE = "transformers.modeling_rope_utils"
_GROWS = "dynamic_frequency_update"  # what dynamic_rope_update calls for these


def _decorated() -> Sequence[Place]:
    """``forward`` of every imported class that ``dynamic_rope_update`` decorates."""
    return [
        Attribute(cls, "forward")
        for name, module in list(sys.modules.items())
        if name.startswith("transformers.models.") and ".modeling_" in name
        for cls in list(vars(module).values())
        if inspect.isclass(cls) and cls.__module__ == name and _grows(vars(cls).get("forward"))
    ]


def _grows(forward: Any) -> bool:
    """Whether a function is one that the decorator made, maybe under a patch or another one."""
    function = getattr(forward, "__torchferry_original__", forward)
    while function is not None and _GROWS not in _closure(function):
        function = getattr(function, "__wrapped__", None)
    return function is not None


def _closure(function: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return names


def _type_of(rope: Any, layer_type: str | None) -> str:
    found: str = rope.rope_type if layer_type is None else rope.rope_type[layer_type]
    return found


def _is_dynamic(
    self: Any, x: Any = None, position_ids: Any = None, layer_type: str | None = None
) -> bool:
    del x, position_ids  # given by position or by name
    return "dynamic" in _type_of(self, layer_type)


def _stateless(original: Callable[..., Any]) -> Callable[..., Any]:
    """The frequencies of this call's longest position; upstream also remembers earlier calls."""

    def forward(
        self: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
    ) -> Any:
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        layer = {} if layer_type is None else {"layer_type": layer_type}
        frequencies_of = ROPE_INIT_FUNCTIONS[_type_of(self, layer_type)]
        # Up to max_position_embeddings this gives the original frequencies.
        frequencies, self.attention_scaling = frequencies_of(
            self.config, x.device, seq_len=position_ids.max() + 1, **layer
        )
        name = "inv_freq" if layer_type is None else f"{layer_type}_inv_freq"
        kept = buffers_of(self)[name]
        # Not by assignment: torch.export would make the buffer an output of the graph.
        set_buffer(self, name, frequencies)
        try:
            return inspect.unwrap(original)(self, x, position_ids, **layer)
        finally:
            set_buffer(self, name, kept)

    return forward


PATCHES = (
    Patch(
        subject=f"{_MODULE}.dynamic_rope_update",
        why="an if on the longest position, whose value no trace knows",
        link="https://github.com/huggingface/transformers/pull/30910",
        replace=_stateless,
        acts=_is_dynamic,
        fingerprints=("0ed527ec37be", "b1c9069ee0f7"),
        places=_decorated,
    ),
)
"""One for all the classes."""
