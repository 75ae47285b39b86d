"""The seam to transformers: argument names that differ, and patches that its exporter keeps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from torchferry.capturer.patching.patch import Patch
from torchferry.observer.naming import ALIASES
from torchferry.seams.huggingface import export_patches
from torchferry.seams.symbols import has_unbacked_symbols

__all__ = ["accept_aliases", "borrowed_patches", "import_owners"]

# Ours does it without letting the cache grow past its window.
_NOT_BORROWED = "transformers.cache_utils.DynamicSlidingWindowLayer"
# Right for images of one size only; that it checks, and no ONNX model can.
_NOT_BORROWED_FACTORIES = ("_patch_chunked_vision_attention",)


def accept_aliases(model: torch.nn.Module, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the names ``model.forward`` has for them.

    Only a name that ``forward`` does not have, and whose alias it does have, is changed.

    Args:
        model: any module.
        kwargs: named arguments as the user gave them.

    Returns:
        A new dict in the same order.
    """
    parameters = inspect.signature(model.forward).parameters
    renamed = {
        name: other
        for name, other in (ALIASES, ALIASES[::-1])
        if name in kwargs
        and other not in kwargs
        and name not in parameters
        and other in parameters
    }
    return {renamed.get(name, name): value for name, value in kwargs.items()}


def borrowed_patches() -> tuple[Patch, ...]:
    """The patches for torch.export that the installed transformers keeps for its own exporter.

    None where transformers is not imported or has no exporter (before 5.2): then no model of it
    can be exported either.
    """
    return _borrowed() if "transformers" in sys.modules else ()


def import_owners(subjects: Iterable[str]) -> None:
    """Import the modules of transformers that some dotted names lead into, where there are such.

    Args:
        subjects: names of functions and methods; those of other libraries are left out.
    """
    for subject in subjects:
        parts = subject.split(".")
        if parts[0] == "transformers" and find_spec("transformers") is not None:
            for cut in range(len(parts) - 1, 0, -1):
                with suppress(ModuleNotFoundError):  # the name of a class, or of another version
                    import_module(".".join(parts[:cut]))
                    break


@cache
def _borrowed() -> tuple[Patch, ...]:
    return tuple(
        Patch(
            subject=f"{owner}.{name}",
            why=_first_sentence(factory),
            link="https://github.com/huggingface/transformers (transformers.exporters)",
            replace=factory,
            acts=_batch_is_unknown if name == "scaled_dot_product_attention" else None,
            probe=_has_kernels if name == "is_kernels_available" else None,
        )
        for owner, name, factory in export_patches()
        if owner != _NOT_BORROWED and factory.__name__ not in _NOT_BORROWED_FACTORIES
    )


def _batch_is_unknown(query: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether the batch is a number that only the data tells, which is what that patch is for."""
    return has_unbacked_symbols(query.shape[0])


def _has_kernels() -> bool:
    return find_spec("kernels") is not None


def _first_sentence(factory: Any) -> str:
    text = inspect.getdoc(factory) or "kept by transformers.exporters"
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0]
