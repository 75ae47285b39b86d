"""The modules of a model as a tree, each with the calls of it that were seen."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch

from torchferry.errors import UsageError
from torchferry.observer.observation import Call, Observation
from torchferry.observer.sets import Arguments
from torchferry.seams.pytorch import FORWARD, has_hooks, original_of
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, Structure

__all__ = ["ANY", "Methods", "Mutation", "Piece", "Record", "build_tree"]

Methods = Mapping[type[torch.nn.Module] | str, str | None]
"""Which method is traced, by class, class name or dotted path; an empty one: not traced at all."""


@dataclass(frozen=True)
class Mutation:
    """What a call did to its arguments, as a cache grows in place.

    Attributes:
        structure: of ``(args, kwargs)`` after the call, each argument under its name.
        leaves: one a leaf: where it was before if it is still the same (``value`` is None, or
            what was written into it), or None with the new ``value``.
    """

    structure: Structure
    leaves: tuple[tuple[Path | None, Any], ...]


@dataclass(frozen=True)
class Record(Call):
    """One call of a piece; its tensors may be those of other records too: read them only.

    Attributes:
        mutation: what it changed in its arguments; None when it changed nothing.
    """

    mutation: Mutation | None = None


class Piece:
    """One module of a model: where it stands, and how it was called.

    Attributes:
        parent: the piece it is a part of; None for the model.
        name: as its parent calls it: ``layers[0]``; ``__main__`` for the model.
        path: as the model calls it: ``decoder.layers.0``; empty for the model.
        model: the module.
        level: 0 for the model, 1 for its submodules, and so on.
        method_name: which of its methods is spied on.
        signature: of that method.
        entry: what is recorded and replaced: the method, or what runs it within its hooks.
        calls: in the order they ended.
        children: the pieces it is made of; a module used in two places stands in the first.
        callees: the pieces that were called by its own code, wherever they stand.
    """

    def __init__(  # noqa: PLR0917  (the order in which people who know the class give them)
        self,
        parent: Piece | None,
        name: str,
        model: torch.nn.Module,
        level: int = 0,
        method_name: str = "forward",
        path: str = "",
    ) -> None:
        self.parent = parent
        self.name = name
        self.path = path
        self.model = model
        self.level = level
        self.method_name = method_name
        self.signature = _signature(getattr(model, method_name))
        hooked = method_name == "forward" and has_hooks(model)
        self.entry = FORWARD if hooked else method_name
        self.calls: list[Record] = []
        self.children: list[Self] = []
        self.callees: list[Piece] = []

    def normalized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a call, each moved to its name where it has one."""
        return Observation(self.signature, self.title).normalized(Call(args, kwargs))

    @property
    def inputs(self) -> list[Arguments]:
        """``(args, kwargs)`` of every call, as they were before it."""
        return [(call.args, call.kwargs) for call in self.calls]

    @property
    def outputs(self) -> list[Any]:
        """What every call returned."""
        return [call.outputs for call in self.calls]

    @property
    def device(self) -> torch.device:
        """Where its first parameter or buffer is; the CPU without any."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def title(self) -> str:
        """The name of its class."""
        return type(self.model).__name__

    @property
    def full_name(self) -> str:
        """Name and class name: ``head:Linear``, ``vae:Autoencoder.encode``."""
        method = "" if self.method_name == "forward" else f".{self.method_name}"
        return f"{self.name}:{self.title}{method}"

    @property
    def custom_op_name(self) -> str:
        """The operator that replaces it: ``C_Model_layers_0``."""
        if self.parent is None:
            return f"C_{self.title}"
        plain = re.sub(r"_*\W+_*", "_", self.name).strip("_")
        return f"{self.parent.custom_op_name}_{plain}"

    @property
    def dot_name(self) -> str:
        """The name indented by level: ``....bad``, ``..vae::encode``."""
        method = "" if self.method_name == "forward" else f"::{self.method_name}"
        return f"{'..' * self.level}{self.name}{method}"

    @property
    def module_name_type(self) -> str:
        """Name and class: ``type(head)=Linear``."""
        return f"type({self.name})={self.title}"

    def add_child(self, child: Self) -> None:
        """Take one more submodule."""
        self.children.append(child)

    def add_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any = None) -> None:
        """Take one more call, made elsewhere; everything is copied."""
        copied_args, copied_kwargs = clone((args, kwargs))
        self.calls.append(Record(copied_args, copied_kwargs, clone(outputs)))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module as whoever uses it does."""
        return self.run_as(self.model, args, kwargs)

    def run_as(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the module, or a copy of it, as whoever uses it does."""
        placed, named = self.placed(args, kwargs)
        return getattr(model, self.entry)(*placed, **named)

    def placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Arguments, those by position that were so in the first call: hooks see the difference.

        `normalized` and the exporters have given them their names.
        """
        named = dict(kwargs)
        if self.entry == self.method_name or args or not self.calls:
            return args, named
        first = [*self.signature.parameters][: len(self.calls[0].args)]
        by_place = [*itertools.takewhile(named.__contains__, first)]
        return tuple(named.pop(name) for name in by_place), named

    def walk(self) -> Iterator[Self]:
        """The piece and all below it, each before its parts."""
        yield self
        for child in self.children:
            yield from child.walk()


ANY = inspect.signature(lambda *args, **kwargs: (args, kwargs))
"""Of a method that takes anything."""


def _signature(method: Callable[..., Any]) -> inspect.Signature:
    """What a method takes; anything, where that cannot be read, as of what TorchScript traced."""
    found = getattr(method, "__func__", None)
    if isinstance(found, types.FunctionType):
        return _without_self(found)
    try:
        return inspect.signature(method)
    except ValueError:
        return ANY


@functools.lru_cache(4096)  # many modules are of one class
def _without_self(function: types.FunctionType) -> inspect.Signature:
    return inspect.signature(types.MethodType(function, object()))


P = TypeVar("P", bound=Piece)


def build_tree(cls: type[P], model: torch.nn.Module, traced_method: Methods | None = None) -> P:
    """Every module of a model that has the method to be traced.

    Modules without it (``ModuleList``, ``ModuleDict``) are left out; their parts are called
    ``layers[0]``.

    Args:
        cls: the class of the pieces.
        model: any module.
        traced_method: where it is not ``forward``.

    Raises:
        UsageError: the model is no module or not to be traced, or a method that is asked for is
            not there.

    >>> model = torch.nn.ModuleDict({"a": torch.nn.ModuleList([torch.nn.ReLU()])})
    >>> [piece.path for piece in build_tree(Piece, torch.nn.Sequential(model.a[0])).walk()]
    ['', '0']
    """
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"the model is {string_type(model)}: give a torch.nn.Module")
    original = original_of(model)
    if original is not None:
        raise UsageError(
            f"the model is the torch.compile of a {type(original).__name__}, whose modules "
            "are compiled together: give model._orig_mod, which is the module itself"
        )
    methods = dict(traced_method or {})
    method = _method_of(model, "__main__", "", methods)
    if method is None or not _has(model, method):
        raise UsageError(
            f"{type(model).__name__} has no method to trace: name one that runs it with "
            f"traced_method={{{type(model).__name__!r}: 'method'}}"
        )
    root = cls(None, "__main__", model, method_name=method)
    _Grower(methods, model).grow(root, model, "", "")
    return root


class _Grower:
    """Adds pieces to a tree; a module that stands there already is left out."""

    def __init__(self, methods: Methods, root: torch.nn.Module) -> None:
        self.methods = methods
        self.seen = {id(root)}

    def grow(self, parent: Piece, module: torch.nn.Module, prefix: str, path: str) -> None:
        """Add what stands in ``module``, which is the parent's or a container within it."""
        listed = isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict)
        for key, child in module.named_children():
            if id(child) in self.seen:
                continue
            self.seen.add(id(child))
            step = key if not prefix else f"{prefix}[{key}]" if listed else f"{prefix}.{key}"
            place = f"{path}.{key}" if path else key
            method = _method_of(child, step, place, self.methods)
            if method is None:
                continue
            if _has(child, method):
                piece = type(parent)(parent, step, child, parent.level + 1, method, place)
                parent.add_child(piece)
                self.grow(piece, child, "", place)
            else:
                self.grow(parent, child, step, place)


def _method_of(module: torch.nn.Module, name: str, path: str, methods: Methods) -> str | None:
    """The method to trace; None when it is not to be."""
    for key in (path, name, type(module), type(module).__name__):
        if key and key in methods:
            method = methods[key] or None
            if method is not None and not callable(getattr(module, method, None)):
                raise UsageError(
                    f"traced_method names {method!r} for {path or type(module).__name__}, and "
                    f"{type(module).__name__} has no such method"
                )
            return method
    return "forward"


def _has(module: torch.nn.Module, method: str) -> bool:
    """Whether a module has the method; ``forward`` of ``nn.Module`` itself only raises."""
    undefined = inspect.getattr_static(torch.nn.Module, "forward")
    return inspect.getattr_static(type(module), method, None) is not undefined
