"""torch's symbolic sizes; importing what is here takes torch a second."""

from __future__ import annotations

from typing import Any

from torchferry.seams.table import reach

__all__ = [
    "expression_text",
    "has_unbacked_symbols",
    "hints_of",
    "is_known_true",
    "new_shape_env",
    "trace_fake",
    "vmap_indexing",
]

_SIZES = "torch.fx.experimental.symbolic_shapes"


def is_known_true(condition: Any) -> bool:
    """Whether a condition on sizes holds, as far as torch knows without deciding it."""
    return bool(reach(f"{_SIZES}.statically_known_true")(condition))


def has_unbacked_symbols(size: Any) -> bool:
    """Whether a size depends on data."""
    return bool(reach(f"{_SIZES}.free_unbacked_symbols")(size))


def expression_text(expression: Any) -> str:
    """A guard's expression as Python has it: ``s0 % 2 == 0``."""
    return str(reach("torch.utils._sympy.printers.PythonPrinter")().doprint(expression))


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
