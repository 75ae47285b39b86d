"""The registry of lowerings: which function writes which ATen overload in ONNX."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch

from torchferry.errors import UsageError
from torchferry.seams.operators import Absent
from torchferry.seams.pytorch import OpOverload, schema_of

__all__ = [
    "Lowering",
    "Override",
    "Promotion",
    "absent",
    "changed",
    "find_lowering",
    "lowers",
    "parameter_name",
    "registered",
]

Promotion = Literal["default", "float", "bool_to_long"]
"""How the operands of an element-wise operator come to one dtype before it is written.

``default``: PyTorch's type promotion. ``float``: the same, and integers become the default
floating dtype (``sin`` of an int64 tensor is float32). ``bool_to_long``: the same as ``default``,
and bool becomes int64 (``sum`` of a mask counts).
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""


@dataclass(frozen=True)
class Lowering:
    """A function that writes one operator, and what the driver does before it calls it.

    Attributes:
        write: ``write(b, *args, **kwargs)`` with the schema's parameters, by name.
        promote: the operands' type promotion; ``None`` leaves them as they are.
        operands: the schema's arguments that are promoted together; every tensor and number that
            stands before the first keyword-only argument when ``None``.
        change: how this torch's schema differs from the function's parameters; empty when it
            does not. The driver then calls the function by name.
    """

    write: Callable[..., Any]
    promote: Promotion | None
    operands: tuple[str, ...] | None
    change: str = ""

    def by_name(self, target: Any, bound: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, for a schema that has others than ``write``.

        Raises:
            ValueError: the call cannot be written without those that differ.
        """
        defaults = {parameter_name(a.name): a.default_value for a in schema_of(target).arguments}
        named = {**dict(zip(defaults, bound, strict=False)), **named}
        _, *parameters = inspect.signature(self.write).parameters.values()
        known = {p.name for p in parameters}
        new = {name for name in named.keys() - known if named[name] != defaults[name]}
        gone = {p.name for p in parameters if p.default is p.empty and p.name not in named}
        if new or gone:
            raise ValueError(
                f"its schema in torch {torch.__version__} is not the one that torchferry knows "
                f"({self.change}), and this call needs {', '.join(sorted(new | gone))}: use a "
                "newer torchferry or an older torch"
            )
        return {name: value for name, value in named.items() if name in known}


_PLAIN: dict[Any, Lowering] = {}
_COMPLEX: dict[Any, Lowering] = {}
_ABSENT: dict[str, Callable[..., Any]] = {}
_OURS = __name__.split(".", maxsplit=1)[0] + "."


class Override:
    """A lowering that stands in the place of another within a ``with`` block.

    It is called as the function that it was made of.
    """

    def __init__(
        self, write: Callable[..., Any], registry: dict[Any, Lowering], rows: dict[Any, Lowering]
    ) -> None:
        self._write, self._registry, self._rows = write, registry, rows
        self._before: list[dict[Any, Lowering | None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self._write(*args, **kwargs)

    def __enter__(self) -> None:
        """Put the function in the place of what is there, in all threads."""
        _load()
        self._before.append({target: self._registry.get(target) for target in self._rows})
        self._registry.update(self._rows)

    def __exit__(self, *_: object) -> None:
        """Put what was there back."""
        for target, row in self._before.pop().items():
            if row is None:
                del self._registry[target]
            else:
                self._registry[target] = row


@overload
def lowers(
    *targets: Any, promote: Promotion | None = ..., operands: tuple[str, ...] | None = ...,
    complex: bool = ..., override: Literal[False] = ...,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...  # fmt: skip


@overload
def lowers(
    *targets: Any, promote: Promotion | None = ..., operands: tuple[str, ...] | None = ...,
    complex: bool = ..., override: Literal[True],
) -> Callable[[Callable[..., Any]], Override]: ...  # fmt: skip


def lowers(
    *targets: Any,
    promote: Promotion | None = None, operands: tuple[str, ...] | None = None,
    complex: bool = False, override: bool = False,
) -> Callable[[Callable[..., Any]], Any]:  # fmt: skip
    """Register a function as the lowering of ATen overloads.

    The function is called ``f(b, *args, **kwargs)``: ``b`` is the `Block` that nodes are added
    to, the others are the schema's parameters. A tensor is an ``ir.Value`` that has dtype and
    shape; a symbolic size is an int64 ``ir.Value`` of shape ``[1]``, where the schema says
    ``Scalar`` or ``Tensor`` one of shape ``[]``; everything else is what it is in Python. It
    returns a value, or a tuple of values where the schema returns several. Names, dtypes, shapes
    and metadata of what it returns are the driver's.

    Args:
        targets: overloads (``torch.ops.aten.add.Tensor``), also those of a user's own library; or
            a qualified name (``torchvision::nms``) of an operator that may not be imported yet.
            An operator that this torch does not have (`Absent`) is only written down.
        promote: let the driver bring the operands to one dtype first.
        operands: names of the arguments that are promoted; all of them when ``None``.
        complex: the function is for complex tensors, which are float tensors with a last axis of
            two. The other lowerings are never called with one.
        override: return an `Override`: ``with`` it, the function replaces the lowering there is.

    Raises:
        UsageError: a target has a lowering already, or the function's parameters are not the
            schema's.
    """
    registry = _COMPLEX if complex else _PLAIN

    def register(write: Callable[..., Any]) -> Any:
        rows: dict[Any, Lowering] = {}
        for place, target in enumerate(targets):
            if isinstance(target, Absent):
                _ABSENT[target.name] = write
                continue
            if target in registry and not override:
                known = registry[target].write
                raise UsageError(
                    f"{target} is lowered by {known.__module__}.{known.__qualname__} already: "
                    "remove one of the two, or have it replaced for a while: override=True"
                )
            change = _check_parameters(target, write, by_name=place == 0)
            rows[target] = Lowering(write, promote, operands, change)
        if override:
            return Override(write, registry, rows)
        registry.update(rows)
        return write

    return register


def find_lowering(target: Any, *, complex: bool = False) -> Lowering | None:
    """The lowering of an overload; ``None`` when there is none of ours."""
    _load()
    registry = _COMPLEX if complex else _PLAIN
    found = registry.get(target)
    if found is None and isinstance(target, OpOverload):
        found = registry.get(schema_of(target).name)
    return found


def registered(*, complex: bool = False) -> Mapping[Any, Lowering]:
    """Every overload that has a lowering of ours."""
    _load()
    return dict(_COMPLEX if complex else _PLAIN)


def absent() -> Mapping[str, Callable[..., Any]]:
    """The operators that lowerings of ours name and this torch does not have, by name."""
    _load()
    return dict(_ABSENT)


def changed() -> Mapping[str, str]:
    """The operators whose schema in this torch is not that of our lowering, and the difference."""
    _load()
    rows = [*_PLAIN.items(), *_COMPLEX.items()]
    return {str(target): row.change for target, row in rows if row.change}


def _check_parameters(target: Any, write: Callable[..., Any], *, by_name: bool) -> str:
    """Compare a lowering with its schema; return how a lowering of ours differs.

    A user's typo fails when it is registered, not when a model needs it. The schema of another
    version of torch, for which a lowering of ours was not written, must not end every export.
    Arguments are given by position where the names differ, so that further overloads may call
    them otherwise.
    """
    schema = schema_of(target)
    if schema is None:
        return ""
    _, *parameters = inspect.signature(write).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return ""
    parameters = [p for p in parameters if not p.name.startswith("_")]
    names = {p.name for p in parameters}
    loose = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = [parameter_name(a.name) for a in schema.arguments]
    unknown = names.difference(known, (p.name for p in parameters if p.kind is p.VAR_KEYWORD))
    missing = [] if loose else [name for name in known if name not in names]
    if not by_name and len(names) >= len(known):
        return ""
    complaints = "; ".join(_complaints(unknown, missing))
    if complaints and not write.__module__.startswith(_OURS):
        raise UsageError(
            f"{write.__module__}.{write.__qualname__} cannot lower {target}: {complaints}. "
            f"The schema is {schema} (self and input are called x)"
        )
    return complaints


def parameter_name(name: str) -> str:
    """What a schema's argument is called in a lowering.

    ``self`` and ``input`` are ``x``; a Python keyword has an underscore after it.
    """
    return "x" if name in ("self", "input") else f"{name}_" if keyword.iskeyword(name) else name


def _complaints(unknown: set[str], missing: list[str]) -> Iterator[str]:
    if unknown:
        yield f"it has no argument {', '.join(sorted(unknown))}"
    if missing:
        yield f"the function lacks {', '.join(missing)}"


def _load() -> None:
    """Our own lowerings register themselves as they are imported."""
    from torchferry.converter import ops  # noqa: F401  (they import this module)
