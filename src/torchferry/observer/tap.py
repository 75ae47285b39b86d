"""Listening to the calls of one method of a module, without changing what it does.

The method is replaced where it is defined: on the class, or on the module that has one of its own.
Modules are told apart when they are called, so that other modules of the class, copies and
subclasses run as without. It is replaced while at least one tap is on it. Taps may come and go in
any order: blocks may be nested, or open in several threads at once.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

import torch

from torchferry.seams.tracing import compiles_here, is_traced_by_fx, mark_constant

__all__ = ["Tap", "is_traced", "tapped"]


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
    traces, and nothing at all while something else does (see `is_traced`). A copy of the module
    made within the block is not listened to, unless the method was set on the module itself, and
    so is copied with it. A method that someone replaces within the block is listened to as far as
    its replacement calls it.
    """
    with ExitStack() as stack:
        for tap in taps:
            stack.callback(_remove, _add(tap), tap)
        yield


def is_traced() -> bool:
    """Whether calls are traced now, so that looking at values would write into a graph.

    By torch.compile, torch.export, AOTAutograd, ``torch.jit.trace``, ``torch.fx.symbolic_trace``
    or ``make_fx``.
    """
    if torch.compiler.is_compiling():  # first, and true while Dynamo reads this
        return compiles_here()
    # torch.jit has no annotations.
    by_jit = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return by_jit or is_traced_by_fx()


mark_constant(compiles_here)


# By id of the class or module that has the method, which the site keeps alive, and its name.
_SITES: dict[tuple[int, str], _Site] = {}
_LOCK = threading.Lock()


class _Site:
    """Stands in for one method where it is defined, for every tap on it."""

    def __init__(self, holder: Any, module: torch.nn.Module, method: str) -> None:
        self.holder = holder
        self.method = method
        self.own = vars(holder).get(method)  # None where a module has it from elsewhere
        self.taps: dict[int, tuple[Tap, ...]] = {}  # by id of the module, which they keep alive
        if isinstance(holder, type):
            self.stand_in: Any = _for_class(self, vars(holder)[method])
        else:
            self.stand_in = _for_module(self, module, getattr(module, method))
        self._set(self.stand_in)

    def _set(self, value: Any) -> None:
        # Not setattr: classes and modules may do what they like with that, as OptimizedModule.
        if isinstance(self.holder, type):
            type.__setattr__(self.holder, self.method, value)
        else:
            vars(self.holder)[self.method] = value

    @property
    def on_top(self) -> bool:
        """Whether nobody has replaced the method again since."""
        return vars(self.holder).get(self.method) is self.stand_in

    def restore(self) -> None:
        if not self.on_top:
            return  # what replaced it may call it: without taps it only passes calls on
        if self.own is None:
            del vars(self.holder)[self.method]
        else:
            self._set(self.own)

    def export(self, module: torch.nn.Module) -> None:
        for tap in self.taps.get(id(module), ()):
            tap.export()

    def run(
        self, module: torch.nn.Module, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        taps = self.taps.get(id(module), ())
        if not taps or is_traced():
            return call(*args, **kwargs)
        entered = [tap.enter(args, kwargs) for tap in taps]
        outputs = call(*args, **kwargs)
        for tap, mine in zip(reversed(taps), reversed(entered), strict=True):
            tap.leave(mine, outputs)
        return outputs


def _for_class(site: _Site, original: types.FunctionType) -> Callable[..., Any]:
    """The function that is put in the place of a class's method, with its signature."""
    # Not globals: see below.
    compiler, run, bind, export = torch.compiler, site.run, types.MethodType, _export_of(site)
    here = compiles_here

    def method(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if compiler.is_compiling() and here():
            if compiler.is_exporting():
                export(module)
            return original(module, *args, **kwargs)
        return run(module, bind(original, module), args, kwargs)

    # torch.jit.script reads the source of the original, and finds its names among those of this.
    names = original.__globals__
    if original.__closure__:
        names = {**names, **_closure_of(original)}
    stand_in = types.FunctionType(
        method.__code__, names, original.__name__, None, method.__closure__
    )
    return functools.update_wrapper(stand_in, original)


def _closure_of(function: types.FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # no value yet
            found[name] = cell.cell_contents
    return found


def _for_module(
    site: _Site, module: torch.nn.Module, original: Callable[..., Any]
) -> Callable[..., Any]:
    """What is put in the place of a method that is a module's own, or nobody's function."""
    export = _export_of(site)
    if not inspect.ismethod(original) or original.__self__ is not module:

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() and compiles_here():
                if torch.compiler.is_exporting():
                    export(module)
                return original(*args, **kwargs)
            return site.run(module, original, args, kwargs)

        return function

    unbound = original.__func__

    # A method, as copy.deepcopy binds the one it copies to the copied module.
    @functools.wraps(unbound)
    def method(self: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() and compiles_here():
            if torch.compiler.is_exporting():
                export(self)
            return unbound(self, *args, **kwargs)
        return site.run(self, types.MethodType(unbound, self), args, kwargs)

    return types.MethodType(method, module)


def _export_of(site: _Site) -> Callable[[torch.nn.Module], None]:
    def export(module: torch.nn.Module) -> None:
        site.export(module)

    mark_constant(export)  # strict export runs it
    return export


def _holder(module: torch.nn.Module, method: str) -> Any:
    """The class whose function the method is, or else the module."""
    if method not in vars(module):
        for cls in type(module).__mro__:
            if method in vars(cls):
                plain = isinstance(vars(cls)[method], types.FunctionType)
                return cls if plain and cls is not torch.nn.Module else module
    return module


def _add(tap: Tap) -> _Site:
    with _LOCK:
        holder = _holder(tap.module, tap.method)
        key = id(holder), tap.method
        site = _SITES.get(key)
        if site is None or not site.on_top:
            site = _SITES[key] = _Site(holder, tap.module, tap.method)
        site.taps[id(tap.module)] = (*site.taps.get(id(tap.module), ()), tap)
    return site


def _remove(site: _Site, tap: Tap) -> None:
    key = id(site.holder), site.method
    with _LOCK:
        left = tuple(other for other in site.taps.pop(id(tap.module)) if other is not tap)
        if left:
            site.taps[id(tap.module)] = left
        if not site.taps:
            site.restore()
            if _SITES.get(key) is site:
                del _SITES[key]
