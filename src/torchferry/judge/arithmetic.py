"""The arithmetic inside a call: its dtypes, another rounding of each result, and float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchferry.seams.pytorch import OpOverload, TorchDispatchMode, pytree, schema_of

__all__ = ["ComputesInFloat64", "Listener", "RoundsOtherwise", "WatchesDtypes", "moved"]

_COARSE = (torch.float16, torch.bfloat16)
_NARROW = (*_COARSE, torch.float32)
_BITS = {
    torch.float64: torch.int64, torch.float32: torch.int32,
    torch.float16: torch.int16, torch.bfloat16: torch.int16,
}  # fmt: skip
# Operators that give numbers of their arguments as they are, or whole ones: nothing is rounded.
_EXACT = """abs amax amin arange argmax argmin argsort cat ceil clamp clamp_max clamp_min clone
    constant_pad_nd copy embedding empty empty_like eye fill flip floor full full_like gather index
    index_copy index_put index_select kthvalue lift_fresh masked_fill max max_pool1d max_pool2d
    max_pool2d_with_indices maximum median min minimum mode neg new_empty new_full new_ones
    new_zeros one_hot ones ones_like pixel_shuffle reflection_pad1d reflection_pad2d relu repeat
    repeat_interleave replication_pad1d replication_pad2d roll round scalar_tensor scatter sign
    slice_scatter sort stack take topk tril triu trunc unique_dim where zero zeros zeros_like"""
_EXACT_NAMES = frozenset(f"aten::{name}" for name in _EXACT.split())


class Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]  # modes have no annotations
    """Hears every operator that runs, but for those inside the branches of ``torch.cond``."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and hand on what is heard of it."""
        results = func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):
            return results
        return self.hear(func, args, kwargs or {}, results)

    def hear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> Any:
        """Hand on the result of an operator, or another in its place."""
        raise NotImplementedError


class WatchesDtypes(Listener):  # type: ignore[no-untyped-call]  # as above
    """Notes the floating dtypes of less precision than float32 in which operators compute.

    Attributes:
        coarse: those that were met.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coarse: set[torch.dtype] = set()

    def hear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> Any:
        """Look at the result."""
        del func, args, kwargs
        for leaf in pytree.tree_leaves(results):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _COARSE:
                self.coarse.add(leaf.dtype)
        return results


class RoundsOtherwise(Listener):  # type: ignore[no-untyped-call]  # as above
    """Moves every result that is rounded to a number next to it, at random.

    That is what another order of summation or another library does. It reaches what no change of
    the inputs does, as sums that cancel each other, and the precision that half has inside.
    """

    def __init__(self, seed: int) -> None:
        """Begin a series of random moves."""
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def hear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> Any:
        """Move what the operator rounds."""
        del kwargs
        if schema_of(func).name.removesuffix("_") not in _EXACT_NAMES:
            for tensor in _computed(func, results):
                if not any(tensor is arg for arg in args) or schema_of(func).is_mutable:
                    tensor.copy_(moved(tensor, self._generator))
        return results


class ComputesInFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as above
    """Widens whatever an operator takes and gives, so that no copy of the weights is needed.

    Views stay what they are, and so do random numbers and what is written to.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator in float64."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        schema = schema_of(func)
        leaves = pytree.tree_leaves((args, kwargs))
        dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
        as_it_is = schema.name in _EXACT_NAMES and torch.float64 not in dtypes
        views = any(one.alias_info and not one.alias_info.is_write for one in schema.returns)
        if dtypes and not (as_it_is or views or torch.Tag.nondeterministic_seeded in func.tags):
            kept = {one.name for one in schema.arguments if one.alias_info}
            named = zip((one.name for one in schema.arguments), args, strict=False)
            args = tuple(arg if name in kept else _widened(arg) for name, arg in named)
            kwargs = {key: arg if key in kept else _widened(arg) for key, arg in kwargs.items()}
        results = func(*args, **kwargs)
        return results if views or schema.is_mutable else _widened(results)


def _widened(values: Any) -> Any:
    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return torch.float64 if leaf in _NARROW else leaf
        narrow = isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW
        return leaf.double() if narrow else leaf

    return pytree.tree_map(widen, values)


def _computed(func: Any, results: Any) -> Iterator[torch.Tensor]:
    """The results of an operator that are no views of its arguments."""
    listed = results if isinstance(results, tuple | list) else (results,)
    for result, said in zip(listed, schema_of(func).returns, strict=False):
        view = said.alias_info is not None and not said.alias_info.is_write
        if isinstance(result, torch.Tensor) and result.dtype in _BITS and not view:
            yield result


def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each number, or the next one above or below it; whole numbers of a count are left.

    >>> numbers = torch.full((9,), 1 / 3)
    >>> found = moved(numbers, torch.Generator().manual_seed(0))
    >>> bool((found != numbers).any()), torch.allclose(found, numbers)
    (True, True)
    """
    if tensor.dtype not in _BITS or tensor.layout is not torch.strided or tensor.is_meta:
        return tensor
    bits = _BITS[tensor.dtype]
    steps = torch.randint(-1, 2, tensor.shape, generator=generator, dtype=bits)
    other = (tensor.detach().view(bits) + steps.to(tensor.device)).view(tensor.dtype)
    counted = torch.finfo(tensor.dtype).eps ** -0.5
    whole = (tensor == tensor.round()) & (tensor.abs() < counted)
    return torch.where(whole | ~other.isfinite(), tensor, other)
