"""torch's symbolic sizes; importing what is here takes torch a second."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from torchferry.seams.table import probe, reach

__all__ = [
    "expression_text",
    "has_unbacked_symbols",
    "hints_of",
    "is_known_true",
    "new_shape_env",
    "plain_text",
    "share_symbols",
    "trace_fake",
    "vmap_indexing",
]

_SIZES = "torch.fx.experimental.symbolic_shapes"
_GONE = object()


def is_known_true(condition: Any) -> bool:
    """Whether a condition on sizes holds, as far as torch knows without deciding it."""
    return bool(reach(f"{_SIZES}.statically_known_true")(condition))


def has_unbacked_symbols(size: Any) -> bool:
    """Whether a size depends on data."""
    return bool(reach(f"{_SIZES}.free_unbacked_symbols")(size))


def expression_text(expression: Any) -> str:
    """A guard's expression as Python has it: ``s0 % 2 == 0``."""
    return plain_text(
        str(reach("torch.utils._sympy.printers.PythonPrinter")().doprint(expression))
    )


def plain_text(guard: str) -> str:
    """A guard as torch up to 2.13 writes it: ``max(n, 3)`` for ``torch.sym_max(n, 3)``."""
    return re.sub(r"torch\.sym_(max|min)\(", r"\1(", guard)


def new_shape_env() -> Any:
    """Where torch writes down what it learns of symbolic sizes."""
    return reach(f"{_SIZES}.ShapeEnv")()


def hints_of(environment: Any) -> dict[Any, int]:
    """The number that each symbol stood for as a program was traced (torch 2.11 to 2.14)."""
    return dict(getattr(environment, "backed_var_to_val", {}))


def trace_fake(function: Any, **options: Any) -> Any:
    """``make_fx``: a function that traces another one on the tensors it is called with."""
    return reach("torch.fx.experimental.proxy_tensor.make_fx")(function, **options)


def vmap_indexing() -> Any:
    """A mode in which a tensor may be indexed with the places that vmap maps over."""
    return reach("torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex")()


@contextmanager
def share_symbols(
    group_of: Callable[[Any, int], Hashable], shared: Callable[[str, str], object]
) -> Iterator[None]:
    """Have torch.export give sizes of inputs that are in one group one symbol, in the block.

    torch then writes down that they are equal, as it does where a model needs them to be.

    Args:
        group_of: takes an input tensor and an axis; returns a group, or ``None``.
        shared: called with a symbol and the source of each further size that it stands for.
    """
    utils, environment = probe("torch._export.non_strict_utils"), probe(f"{_SIZES}.ShapeEnv")
    kept = ("create_symbol", "source_to_var", "var_to_sources")
    known = [probe(f"{_SIZES}.ShapeEnv.{name}", _GONE) for name in kept]
    if getattr(utils, "fakify", None) is None or _GONE in known:
        yield
        return
    fakify, create = utils.fakify, environment.create_symbol
    symbols: dict[Hashable, Any] = {}
    current: list[Any] = [None]

    def remember_tensor(mode: Any, path: Any, tensor: Any, *rest: Any, **more: Any) -> Any:
        current[0] = tensor
        try:
            return fakify(mode, path, tensor, *rest, **more)
        finally:
            current[0] = None

    def find_symbol(env: Any, value: Any, source: Any, *rest: Any, **more: Any) -> Any:
        is_size = getattr(getattr(source, "prop", None), "name", "") == "SIZE"
        group = group_of(current[0], source.idx) if is_size and current[0] is not None else None
        if group is None:
            return create(env, value, source, *rest, **more)
        symbol = symbols.get((group, value))
        if symbol is None or symbol not in env.var_to_sources:
            symbol = symbols[group, value] = create(env, value, source, *rest, **more)
        else:
            env.source_to_var[source.name] = symbol
            env.var_to_sources[symbol].append(source)
            shared(str(symbol), source.name)
        return symbol

    utils.fakify, environment.create_symbol = remember_tensor, find_symbol
    try:
        yield
    finally:
        utils.fakify, environment.create_symbol = fakify, create
