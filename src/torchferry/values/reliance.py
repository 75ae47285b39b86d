"""What code may ask of arguments besides types and sizes, and calls that answer otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torchferry.errors import UsageError

__all__ = ["Reliance", "check_reliances"]

Reliance = Literal["memory layout", "gradients", "order", "shared memory", "numbers"]

_SCATTERED = (
    "is not contiguous, or not at the start of its memory",
    "clone(memory_format=torch.contiguous_format)",
)


def check_reliances(
    asked: Sequence[Reliance], leaves: Mapping[str, Any], exported: Sequence[str]
) -> None:
    """Refuse arguments for which the model's code may do something else.

    Args:
        asked: what the model's code asks.
        leaves: of a call, by name, in its order.
        exported: names of the leaves in the order that they were exported in.

    Raises:
        UsageError: a tensor lies otherwise in memory, wants derivatives or holds a NaN, two share
            their memory, or named arguments come in another order.
    """
    import torch

    owners: dict[int, str] = {}
    for name, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor):
            continue
        if "memory layout" in asked and (not leaf.is_contiguous() or leaf.storage_offset()):
            raise _refusal(name, *_SCATTERED)
        if "gradients" in asked and (leaf.requires_grad or isinstance(leaf, torch.nn.Parameter)):
            raise _refusal(name, "is a parameter, or wants derivatives", "detach()")
        may_be_nan = leaf.is_floating_point() or leaf.is_complex()
        if "numbers" in asked and may_be_nan and bool(leaf.isnan().any()):
            raise UsageError(
                f"argument {name} holds a NaN, which onnxruntime may lose in a max pool, LSTM, "
                f"GRU or RNN: keep NaN out ({name}.nan_to_num()), or run the model in PyTorch"
            )
        owner = owners.setdefault(leaf.untyped_storage().data_ptr(), name)
        if "shared memory" in asked and owner != name and leaf.numel():
            raise _refusal(name, f"shares its memory with {owner}", "clone()")
    if "order" in asked:
        places = [exported.index(name) for name in leaves if name in exported]
        if places != sorted(places):
            raise UsageError(
                f"arguments come in the order {', '.join(leaves)}, and were exported as "
                f"{', '.join(exported)}: the model's code does something else then. Give them as "
                "exported"
            )


def _refusal(name: str, what: str, change: str) -> UsageError:
    return UsageError(
        f"argument {name} {what}, which the model's code asks for, and does something else then. "
        f"Give {name}.{change}"
    )
