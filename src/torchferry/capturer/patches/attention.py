"""Attention that is asked whether to be causal by a symbol, or by the values of a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchferry.capturer.patching.patch import Patch
from torchferry.seams.pytorch import DataDependentOutputException, FakeTensorMode, causal_mask_test

__all__ = ["PATCHES"]


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``is_causal``, which is the sixth argument."""
    return args[5] if len(args) > 5 else kwargs.get("is_causal")


def _is_symbolic(*args: Any, **kwargs: Any) -> bool:
    return isinstance(_given(args, kwargs), torch.SymBool)


def _decided(original: Callable[..., Any]) -> Callable[..., Any]:
    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
        """The same with ``is_causal`` as a bool: what that fixes shows as a fixed dimension."""
        is_causal = bool(_given(args, kwargs))
        if len(args) > 5:
            return original(*args[:5], is_causal, *args[6:], **kwargs)
        return original(*args, **{**kwargs, "is_causal": is_causal})

    return scaled_dot_product_attention


def _refuses_symbols() -> bool:
    """Whether a comparison of sizes is refused as ``is_causal``."""

    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            longer = torch.ops.aten.sym_size.int(x, 1) > 1
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=longer)

    try:
        torch.export.export(
            Attention(), (torch.zeros(2, 3, 4),), dynamic_shapes=({1: torch.export.Dim.AUTO},)
        )
    except TypeError:
        return True
    return False


def _has_mask(mask: Any, is_causal: bool | None = None, *_size: Any, **_named: Any) -> bool:
    return mask is not None and is_causal is None


def _unasked(_original: Callable[..., Any]) -> Callable[..., Any]:
    def detect_is_causal_mask(*_args: Any, **_kwargs: Any) -> bool:
        """No hint: attention then adds the mask that it has, which is the same."""
        return False

    return detect_is_causal_mask


def _reads_the_mask() -> bool:
    """Whether layers look for zeros and minus infinities in their mask."""
    with FakeTensorMode():
        try:
            causal_mask_test()(torch.zeros(2, 2), None, 2)
        except DataDependentOutputException:
            return True
    return False


PATCHES = (
    Patch(
        subject="torch.nn.modules.transformer._detect_is_causal_mask",
        why="torch.nn.TransformerEncoder and TransformerDecoder look at the values of a mask, "
        "only to choose between equal ways",
        link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/transformer.py",
        replace=_unasked,
        acts=_has_mask,
        probe=_reads_the_mask,
    ),
    Patch(
        subject="torch.nn.functional.scaled_dot_product_attention",
        why="argument 'is_causal' must be bool, not SymBool, when a comparison of sizes is given",
        link="https://github.com/huggingface/transformers/pull/46196",
        replace=_decided,
        acts=_is_symbolic,
        probe=_refuses_symbols,
    ),
)
"""All of them."""
