"""Listening to the calls of one method of a module, without changing what it does.

The method is replaced on the instance while at least one tap is on it. Taps may come and go in
any order: blocks may be nested, or open in several threads at once.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch

__all__ = ["Tap", "tapped"]


class Tap(Protocol):
    """Listens to one method of one module."""

    module: torch.nn.Module
    method: str

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The method is called; what this returns, `leave` is given."""
        ...

    def leave(self, entered: Any, outputs: Any) -> None:
        """The method has returned; not called when it raised."""
        ...

    def export(self) -> None:
        """The method is traced by torch.export: called instead of the two others."""
        ...


@contextmanager
def tapped(taps: Sequence[Tap]) -> Iterator[None]:
    """Call the taps while the block runs; then everything is as it was before, whatever happened.

    The replaced methods keep their signature. Nothing is called but ``export`` while torch.export
    traces, and nothing at all while torch.compile or torch.jit does. A copy of the module made
    within the block is not listened to.
    """
    with ExitStack() as stack:
        for tap in taps:
            stack.callback(_remove, _add(tap), tap)
        yield


# By id of the module, which the replacement keeps alive, and name of the method.
_REPLACED: dict[tuple[int, str], _Replacement] = {}
_LOCK = threading.Lock()


class _Replacement:
    """Stands in for one method of one module, for every tap on it."""

    def __init__(self, module: torch.nn.Module, method: str) -> None:
        self.module = module
        self.method = method
        self.own = vars(module).get(method)  # set on the instance by someone else
        self.taps: tuple[Tap, ...] = ()
        self.stolen = _stand_in(self, getattr(module, method))
        # Not setattr: modules may do what they like with that, as OptimizedModule does.
        vars(module)[method] = self.stolen

    @property
    def on_top(self) -> bool:
        """Whether nobody has replaced the method again since."""
        return vars(self.module).get(self.method) is self.stolen

    def restore(self) -> None:
        if not self.on_top:
            return  # what replaced it may call it: without taps it only passes calls on
        if self.own is None:
            del vars(self.module)[self.method]
        else:
            vars(self.module)[self.method] = self.own

    def export(self) -> None:
        for tap in self.taps:
            tap.export()

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # torch.jit has no annotations.
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        taps = () if tracing else self.taps
        entered = [tap.enter(args, kwargs) for tap in taps]
        outputs = call(*args, **kwargs)
        for tap, mine in zip(reversed(taps), reversed(entered), strict=True):
            tap.leave(mine, outputs)
        return outputs


def _stand_in(replacement: _Replacement, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is put in the place of the original, with its signature."""

    def export() -> None:
        replacement.export()

    # What torch.compiler.assume_constant_result sets, which would import the whole compiler: where
    # the tracer is Dynamo (strict export), it runs the function instead of tracing it.
    vars(export)["_dynamo_marked_constant"] = True

    if not inspect.ismethod(original) or original.__self__ is not replacement.module:

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # first, and true while Dynamo reads this
                if torch.compiler.is_exporting():
                    export()
                return original(*args, **kwargs)
            return replacement.run(original, args, kwargs)

        return function

    unbound = original.__func__

    # A method, as copy.deepcopy binds the one it copies to the copied module.
    @functools.wraps(unbound)
    def method(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():
                export()
            return unbound(module, *args, **kwargs)
        if module is not replacement.module:
            return unbound(module, *args, **kwargs)
        return replacement.run(original, args, kwargs)

    return types.MethodType(method, replacement.module)


def _add(tap: Tap) -> _Replacement:
    key = id(tap.module), tap.method
    with _LOCK:
        replacement = _REPLACED.get(key)
        if replacement is None or not replacement.on_top:
            replacement = _REPLACED[key] = _Replacement(tap.module, tap.method)
        replacement.taps += (tap,)
    return replacement


def _remove(replacement: _Replacement, tap: Tap) -> None:
    key = id(replacement.module), replacement.method
    with _LOCK:
        replacement.taps = tuple(other for other in replacement.taps if other is not tap)
        if not replacement.taps:
            replacement.restore()
            if _REPLACED.get(key) is replacement:
                del _REPLACED[key]
