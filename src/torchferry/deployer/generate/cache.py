"""Keys and values as onnxruntime's values, in transformers' own kind of cache."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import onnxruntime
import torch

from torchferry.deployer.generate.inputs import check_prompt, check_tokens
from torchferry.errors import UsageError
from torchferry.runner import to_tensor
from torchferry.zoo.library import import_transformers

__all__ = ["KeepsCache", "as_value", "cache_class", "cache_name", "empty_cache", "own_cache"]

_KINDS = {"tensor(float16)": torch.float16, "tensor(bfloat16)": torch.bfloat16}
_BFLOAT16 = 16  # of ONNX


@cache
def cache_class() -> type[Any]:
    """A subclass of transformers' ``Cache``, which is imported when the class is needed."""
    library = import_transformers("generation")

    # Its class is not known to mypy, as transformers is imported here.
    class SessionCache(library.Cache):  # type: ignore[misc,name-defined]
        """Keys and values by the name of the graph's input."""

        def __init__(self) -> None:
            super().__init__(layers=[])
            self.values: dict[str, onnxruntime.OrtValue] = {}

        def get_seq_length(self, _layer: int = 0) -> int:
            """Tokens that were seen."""
            first = next(iter(self.values.values()), None)
            return 0 if first is None else int(first.shape()[2])

        def reorder_cache(self, beam_idx: torch.Tensor) -> None:
            """Put the sequences of a batch in another order, as beams are chosen."""
            for name, value in self.values.items():
                kept = to_tensor(value)
                if kept is None:  # keys and values are numbers
                    raise AssertionError
                self.values[name] = as_value(kept[beam_idx])

        def crop(self, *_: int) -> None:
            """Refuse to forget tokens.

            Raises:
                UsageError: always.
            """
            raise UsageError(
                "a deployed decoder has no assisted generation: leave out assistant_model"
            )

    return SessionCache


def own_cache(held: Any) -> Any:
    """The cache of a call: a new one if it has none.

    Raises:
        UsageError: it is one of transformers' other caches.
    """
    if held is not None and not isinstance(held, cache_class()):
        raise UsageError(
            f"a deployed model keeps its own cache, and cannot go on with {type(held).__name__}: "
            f"leave out {cache_name()}, or give the one that an earlier call returned"
        )
    return cache_class()() if held is None else held


class KeepsCache:
    """A model of transformers whose ``generate`` keeps the cache in onnxruntime's values."""

    # Where inputs are expected, and what the logits are.
    device, dtype = torch.device("cpu"), torch.float32

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As the ``generate`` of the class that follows.

        Raises:
            UsageError: the prompt or the cache is not what the model takes.
        """
        name = getattr(self, "main_input_name", "input_ids")
        given = args[0] if args else kwargs.get(name, kwargs.get("inputs"))
        if given is not None:
            check_prompt(name, given)
        if name == "input_ids" and given is not None:
            check_tokens(name, given, kwargs.get("attention_mask"))
        held = [kwargs.pop(name, None) for name in ("cache", "past_key_values")]
        kwargs[cache_name()] = own_cache(next((x for x in held if x is not None), None))
        # The class that follows is transformers', which is not imported here.
        return super().generate(*args, **kwargs)  # type: ignore[misc]


@cache
def cache_name() -> str:
    """The name of the cache in transformers' ``generate``: ``past_key_values`` before 5.20."""
    mixin = import_transformers("generation").GenerationMixin
    known = inspect.signature(mixin.prepare_inputs_for_generation).parameters
    return "cache" if "cache" in known else "past_key_values"


def empty_cache(value: Any, batch: int) -> onnxruntime.OrtValue:
    """A cache that holds no token, for one input of a graph: (batch, heads, 0, size)."""
    heads, size = value.shape[1], value.shape[3]
    return as_value(torch.zeros(batch, heads, 0, size), value.type)


def as_value(tensor: torch.Tensor, kind: str = "") -> onnxruntime.OrtValue:
    """A copy of a tensor as onnxruntime has it.

    Args:
        tensor: of any dtype that ONNX has and numpy, or of bfloat16.
        kind: of an input of a graph, which numbers are cast to.
    """
    if kind and tensor.is_floating_point():
        tensor = tensor.to(_KINDS.get(kind, torch.float32))
    elif kind == "tensor(int64)":
        tensor = tensor.to(torch.int64)
    tensor = tensor.contiguous()
    if tensor.dtype != torch.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
    bits = tensor.view(torch.int16).numpy()  # numpy has no bfloat16
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16)
