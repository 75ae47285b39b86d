"""Graphs within a graph that a non-strict trace is making: what torch's operators run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torchferry.seams.table import probe, reach

__all__ = [
    "branch_operator", "export_modes", "is_tracing", "limit_size", "repeat_operator",
    "steps_operator", "without_tracing",
]  # fmt: skip

_OPERATORS = "torch._higher_order_ops"


def branch_operator() -> Any:
    """``cond(test, then, other, operands)``, which traces functions as they are."""
    return reach(f"{_OPERATORS}.cond.cond_op")


def repeat_operator() -> Any:
    """``while_loop(test, body, carried, operands)``, which traces functions as they are."""
    return reach(f"{_OPERATORS}.while_loop.while_loop_op")


def steps_operator() -> Any:
    """``scan(step, carried, sequences, operands)``, which traces functions as they are."""
    return reach(f"{_OPERATORS}.scan.scan_op")


def is_tracing() -> bool:
    """Whether a non-strict trace is under way here, and Dynamo reads no code."""
    return probe("torch.fx.experimental.proxy_tensor.get_proxy_mode", lambda: None)() is not None


def export_modes() -> list[Any]:
    """The modes in which torch.export sees calls of torch, for use in a graph within."""
    kind = probe("torch._export.non_strict_utils._NonStrictTorchFunctionHandler")
    modes = reach("torch.overrides._get_current_function_mode_stack")()
    return [one for one in modes if kind is not None and isinstance(one, kind)]


@contextmanager
def without_tracing(values: Sequence[Any]) -> Iterator[Callable[[Any], bool]]:
    """Run torch's operators on tensors without data, unseen by the trace under way.

    Args:
        values: some of its tensors. Sizes that data would decide are forgotten afterwards.

    Yields:
        whether a size was known before.
    """
    mode = reach("torch._guards.detect_fake_mode")(values)
    sizes: Any = getattr(mode, "shape_env", None)
    known = {*getattr(sizes, "var_to_range", {})}
    fresh: Callable[[], Any] = getattr(sizes, "ignore_fresh_unbacked_symbols", nullcontext)
    hidden = reach("torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing")
    with hidden(), fresh():
        yield lambda size: size.node.shape_env is sizes and size.node.expr.free_symbols <= known


def limit_size(size: Any) -> None:
    """Let torch know that a size which data decides is 0 or more, without a check in the graph."""
    if not isinstance(size, int):
        limit = probe("torch.fx.experimental.symbolic_shapes._constrain_range_for_size")
        if limit is not None:
            limit(size)
