"""Whether one of torch's tracers runs: Dynamo, torch.export, AOTAutograd, torch.fx, torch.jit."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from torchferry.seams.table import probe, reach

__all__ = [
    "aot_metadata", "compiles_here", "dynamo_stack", "is_traced_by_fx", "lift_constant",
    "mark_constant", "set_constant",
]  # fmt: skip


def _no(_: Any) -> bool:
    return False


def _nothing() -> None:
    return None


_symbolic = probe("torch.fx._symbolic_trace.is_fx_symbolic_tracing", _nothing)
_proxy_mode = probe("torch.fx.experimental.proxy_tensor.get_proxy_mode", _nothing)
_dispatch_mode = probe("torch._C._get_dispatch_mode", _no)
_FUNCTIONAL = probe("torch._C._TorchDispatchModeKey.FUNCTIONAL")


def is_traced_by_fx() -> bool:
    """Whether torch.fx, make_fx or AOTAutograd, which looks for writes in place, traces now."""
    return (
        bool(_symbolic())
        or _proxy_mode() is not None
        or (_FUNCTIONAL is not None and bool(_dispatch_mode(_FUNCTIONAL)))
    )


def set_constant(tensor: Any, value: Any) -> None:
    """Let the trace under way know what a tensor holds, so that its values may decide a branch.

    Args:
        tensor: as the traced code has it; nothing happens if no trace follows it.
        value: its values; the trace may write to them.
    """
    mode, find = _proxy_mode(), probe("torch.fx.experimental.proxy_tensor.get_proxy_slot")
    proxy = None if mode is None or find is None else find(tensor, mode.tracer, None)
    if proxy is not None:
        proxy.constant = value


def lift_constant(tensor: Any) -> Any:
    """A copy of a tensor that the trace under way knows the values of.

    Args:
        tensor: a real one, which no trace follows.
    """
    copy = probe("torch.ops.aten.lift_fresh_copy.default")
    return tensor if copy is None else copy(tensor)


def compiles_here() -> bool:
    """Whether it is this thread that compiles or exports, where ``torch.compiler.is_compiling()``.

    torch's flag is one for all threads, and so is the mode in which torch.export traces; what a
    tracer knows of its trace is each thread's own.
    """
    context = probe("torch._guards.TracingContext")
    return context is None or context.try_get() is not None


def aot_metadata() -> Any:
    """Return AOTAutograd's metadata of the current graph; None if AOTAutograd is not running."""
    context = reach("torch._guards.TracingContext").try_get()
    return None if context is None else context.fw_metadata


def dynamo_stack() -> traceback.StackSummary:
    """The frames of the user's code that Dynamo interprets, and that are on no stack of Python."""
    context = probe("torch._guards.TracingContext")
    empty = traceback.StackSummary()
    return empty if context is None else context.extract_stack()


def mark_constant(function: Callable[..., Any]) -> None:
    """Have Dynamo run a function instead of tracing it.

    ``torch.compiler.assume_constant_result`` does that too, and imports the whole compiler.
    """
    vars(function)["_dynamo_marked_constant"] = True
