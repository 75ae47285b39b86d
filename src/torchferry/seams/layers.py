"""What torch.export's trace of a model says of itself, and operators that mark layers in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx

from torchferry.seams.table import probe

__all__ = [
    "CALL", "ENTER", "GIVEN", "LAYER", "LEAVE", "RESULTS", "can_repeat", "constant_of", "in_trace",
    "model_tracer", "name_node", "new_wrapper", "without_functions",
]  # fmt: skip

_PROXIES = "torch.fx.experimental.proxy_tensor"
_proxy_mode = probe(f"{_PROXIES}.get_proxy_mode")
_proxy_slot = probe(f"{_PROXIES}.get_proxy_slot")
_tracer_class = probe(f"{_PROXIES}._ModuleStackTracer")
_function_modes = probe("torch.overrides._get_current_function_mode_stack")
_dispatch_modes = probe("torch.utils._python_dispatch._get_current_dispatch_mode_stack")
_make_wrapper = probe("torch.Tensor._make_wrapper_subclass")
_disabled = probe("torch._C.DisableTorchFunction")

RESULTS: dict[str, Sequence[torch.Tensor | None]] = {}
"""What the calls of each layer that was traced returned: path of the layer → tensors."""

_LIBRARY: Any = vars(torch.library)["Library"]("torchferry", "DEF")  # torch has no types for it


def _define(schema: str, fake: Any) -> Any:
    name = schema.partition("(")[0]
    # Results that depend on chance are never computed from constants while torch traces.
    _LIBRARY.define(schema, tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.register_fake(f"torchferry::{name}", fake, lib=_LIBRARY)
    overload = getattr(torch.ops.torchferry, name).default
    fx.node.has_side_effect(overload)
    return overload


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _results(*arguments: Any) -> list[torch.Tensor]:
    _, like, _, _, numbers = arguments
    return [
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
        for one in map(RESULTS[like].__getitem__, numbers) if one is not None
    ]  # fmt: skip


ENTER = _define("enter(str path) -> ()", _nothing)
"""Where a layer begins."""
GIVEN = _define("given(str path, Tensor given) -> ()", _nothing)
"""A tensor from outside that a traced layer uses for the first time."""
CALL = _define("call(str path, Tensor[] made, int[] numbers) -> ()", _nothing)
"""The end of a call of torch in a traced layer: tensors that it returned, and their numbers."""
LEAVE = _define("leave(str path) -> ()", _nothing)
"""Where a traced layer ends that others may be compared with."""
LAYER = _define(
    "layer(str path, str like, Tensor[] given, int calls, int[] numbers) -> Tensor[]", _results
)  # fmt: skip
"""Stands for the first calls of a layer that are those of another one; some of their results."""


def can_repeat() -> bool:
    """Whether the installed torch has all that is needed to leave out what layers repeat."""
    needed = (_proxy_mode, _proxy_slot, _tracer_class, _function_modes, _dispatch_modes,
              _make_wrapper, _disabled)  # fmt: skip
    return None not in needed


def model_tracer() -> Any:
    """What traces a whole model for torch.export here; ``None`` where nothing does."""
    tracer = getattr(_proxy_mode(), "tracer", None)
    return tracer if isinstance(tracer, _tracer_class) else None


def constant_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor, where the trace under way knows them."""
    tracer = model_tracer()
    proxy = None if tracer is None else _proxy_slot(tensor, tracer, None)
    return getattr(proxy, "constant", None)


def in_trace() -> tuple[Any, ...]:
    """The modes of torch that are under way; they live as long as the tuple."""
    return (*_function_modes(), *_dispatch_modes())


def new_wrapper(cls: type[Any]) -> Any:
    """A tensor of a subclass that has no memory."""
    return _make_wrapper(cls, ())


def without_functions() -> AbstractContextManager[Any]:
    """Nobody hears of attributes of tensors that are read in the block."""
    return nullcontext() if _disabled is None else _disabled()


def name_node(node: fx.Node, name: str) -> None:
    """Give a node of a graph another name, which no other has."""
    space = getattr(node.graph, "_graph_namespace", None)
    if space is not None:
        node.name = name
        used: set[str] = getattr(space, "_used_names", set())
        used.add(name)
