"""Dynamic shapes in every form people write them ↔ one form. Pure Python: no torch.

The one form is nested as the arguments are; each tensor has ``{axis: AxisSpec}`` with the axes
that are not simply static. The forms read are those of ``torch.export.export`` and
``torch.onnx.export`` (https://docs.pytorch.org/docs/stable/export.html): names, ``Dim``,
``Dim.DYNAMIC`` and its sisters, integers, None, by axis or one an axis; and the older
``dynamic_axes``. torch's own objects are known by the names of their classes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchferry.dims.dim import Dim, Size
from torchferry.dims.parse import parse_size
from torchferry.errors import UsageError

__all__ = [
    "AxisSpec",
    "is_axis",
    "parse_axis",
    "parse_dynamic_axes",
    "parse_shapes",
    "shapes_source",
    "to_dynamic_axes",
]

_FORMS = "a name, a Dim, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC, an integer or None"


@dataclass(frozen=True)
class AxisSpec:
    """What is asked of one axis that is not simply static.

    Attributes:
        size: a name, an expression of names, or the one size it must have; ``None`` when only a
            hint is given.
        hint: ``DYNAMIC`` (an error if it turns out static) or ``AUTO`` (torch decides); ``None``
            when there is a size.
        low: the least size allowed, when one is given.
        high: the largest size allowed, when one is given.
    """

    size: Size | None = None
    hint: Literal["DYNAMIC", "AUTO"] | None = None
    low: int | None = None
    high: int | None = None


_DYNAMIC = AxisSpec(hint="DYNAMIC")


def is_axis(value: Any) -> bool:
    """Whether a value says something of one axis: a name, an integer, a ``Dim`` or a hint.

    None does so too, but stands for a whole argument as well, and is not counted.
    """
    if isinstance(value, str | int | Dim | AxisSpec):
        return not isinstance(value, bool)
    return _is_hint(value) or _is_torch_dim(value)


def parse_axis(value: Any, where: str = "an axis") -> AxisSpec | None:
    """Read what is said of one axis.

    ``-1``, as runtimes write an unknown size, is a dynamic axis without a name. None and
    ``Dim.STATIC`` leave it static. The bounds of an expression of ``Dim`` are not kept.

    Args:
        value: one of the forms.
        where: the place, for the message.

    Returns:
        ``None`` for a static axis.

    Raises:
        UsageError: it is something else.

    >>> parse_axis("cache+seq"), parse_axis(-1).hint, parse_axis(None)
    (AxisSpec(size=Dim('cache + seq'), hint=None, low=None, high=None), 'DYNAMIC', None)
    """
    if value is None or isinstance(value, AxisSpec):
        return value
    if isinstance(value, Dim) or (type(value) is int and value >= 0):
        return AxisSpec(size=value)
    if type(value) is int and value == -1:
        return _DYNAMIC
    if isinstance(value, str) and value.strip():
        return AxisSpec(size=parse_size(value))
    if _is_hint(value):
        name = value.type.name
        return None if name == "STATIC" else AxisSpec(hint=name, **_bounds(value))
    if _is_torch_dim(value):
        size = parse_size(value.__name__)
        named = isinstance(size, Dim) and size.name is not None
        return AxisSpec(size=size, **(_bounds(value) if named else {}))
    raise UsageError(f"{where} is {value!r}: give {_FORMS}")


def parse_shapes(shapes: Any, where: str = "dynamic_shapes") -> Any:
    """Bring dynamic shapes into the one form, nested as they are.

    A list or tuple of nothing but sizes is one tensor's axes, as torch takes it; anything else
    is a container. What is said of an integer argument stands alone.

    Args:
        shapes: any of the forms, nested in dicts, lists and tuples.
        where: the place, for messages.

    Raises:
        UsageError: something in it is no dynamic shape; says where.

    >>> parse_shapes({"x": ("batch", None, 3), "flag": None, "pair": ({}, None)})["x"].keys()
    dict_keys([0, 2])
    """
    if shapes is None or is_axis(shapes):
        return parse_axis(shapes, where)
    if isinstance(shapes, Mapping):
        return _parse_mapping(shapes, where)
    if not isinstance(shapes, list | tuple):
        raise UsageError(
            f"{where} is {shapes!r}: give a dict of axes, a list or tuple of axes or of nested "
            f"shapes, {_FORMS}"
        )
    if any(map(is_axis, shapes)) and all(v is None or is_axis(v) for v in shapes):
        return _parse_mapping(dict(enumerate(shapes)), where)
    items = [parse_shapes(value, f"{where}[{i}]") for i, value in enumerate(shapes)]
    return tuple(items) if isinstance(shapes, tuple) else items


def _parse_mapping(shapes: Mapping[Any, Any], where: str) -> dict[Any, Any]:
    axes = [key for key in shapes if type(key) is int]
    if not axes:
        return {key: parse_shapes(value, f"{where}[{key!r}]") for key, value in shapes.items()}
    if len(axes) < len(shapes) or min(axes) < 0:
        raise UsageError(
            f"{where} has the keys {list(shapes)}: axes are integers from 0, arguments have "
            "names; one dict cannot hold both"
        )
    found = {axis: parse_axis(v, f"{where}[{axis}]") for axis, v in shapes.items()}
    return {axis: spec for axis, spec in found.items() if spec is not None}


def parse_dynamic_axes(dynamic_axes: Mapping[str, Any]) -> dict[str, dict[int, AxisSpec]]:
    """Read the ``dynamic_axes`` of the older ``torch.onnx.export``.

    Args:
        dynamic_axes: for each input ``{axis: name}``, or a list of the axes that are dynamic.

    Raises:
        UsageError: it has another form.

    >>> parse_dynamic_axes({"x": [1]})
    {'x': {1: AxisSpec(size=None, hint='DYNAMIC', low=None, high=None)}}
    """
    found: dict[str, dict[int, AxisSpec]] = {}
    for name, axes in dynamic_axes.items():
        where = f"dynamic_axes[{name!r}]"
        named = dict.fromkeys(axes, _DYNAMIC) if isinstance(axes, list | tuple) else axes
        if not isinstance(named, Mapping) or any(type(axis) is not int for axis in named):
            raise UsageError(f"{where} is {axes!r}: give {{axis: name}} or a list of axes")
        found[name] = _parse_mapping(named, where)
    return found


def to_dynamic_axes(shapes: Any) -> dict[str, dict[int, str]]:
    """Write dynamic shapes as the older ``dynamic_axes``; axes without a name get one.

    Args:
        shapes: any form, a dict by argument that nests no further.

    Raises:
        UsageError: an argument is nested: the older form has none for that.

    >>> to_dynamic_axes({"x": {0: "batch", 1: -1, 2: 7}, "flag": None})
    {'x': {0: 'batch', 1: 'x_dim_1'}}
    """
    parsed = parse_shapes(shapes)
    if not isinstance(parsed, dict):
        raise UsageError("dynamic_axes are by the name of an input: give a dict of arguments")
    found: dict[str, dict[int, str]] = {}
    for name, axes in parsed.items():
        if axes is None or axes == {}:
            continue
        if not isinstance(axes, dict) or any(not isinstance(axis, int) for axis in axes):
            raise UsageError(
                f"{name} is nested, and dynamic_axes have no form for that: use dynamic_shapes"
            )
        found[name] = {
            axis: f"{name}_dim_{axis}" if spec.size is None else str(spec.size)
            for axis, spec in axes.items()
            if not isinstance(spec.size, int)
        }
    return found


def shapes_source(shapes: Any) -> str:
    """Write dynamic shapes as Python, for a file that has ``from torch.export import Dim``.

    Names are strings, which ``torch.onnx.export`` takes; names with bounds are ``Dim``.

    Args:
        shapes: any form.

    >>> shapes_source({"x": ("batch", -1), "cache": [[{2: "past"}], ()], "flag": None})
    "{'x': {0: 'batch', 1: Dim.DYNAMIC}, 'cache': [[{2: 'past'}], ()], 'flag': None}"
    """
    return _source(parse_shapes(shapes))


def _source(parsed: Any) -> str:
    if isinstance(parsed, AxisSpec):
        return _axis_source(parsed)
    if isinstance(parsed, dict):
        return f"{{{', '.join(f'{key!r}: {_source(v)}' for key, v in parsed.items())}}}"
    if isinstance(parsed, list):
        return f"[{', '.join(map(_source, parsed))}]"
    if isinstance(parsed, tuple):
        comma = "," if len(parsed) == 1 else ""
        return f"({', '.join(map(_source, parsed))}{comma})"
    return repr(parsed)


def _axis_source(spec: AxisSpec) -> str:
    pairs = (("min", spec.low), ("max", spec.high))
    bounds = [f"{name}={bound}" for name, bound in pairs if bound is not None]
    if spec.hint is not None:
        return f"Dim.{spec.hint}({', '.join(bounds)})" if bounds else f"Dim.{spec.hint}"
    if isinstance(spec.size, int):
        return str(spec.size)
    name = repr(str(spec.size))
    return f"Dim({', '.join([name, *bounds])})" if bounds else name


def _class_names(value: Any) -> set[str]:
    """Names of the classes of a value of torch.export; older releases had classes for Dims."""
    cls = value if isinstance(value, type) else type(value)
    owned = [c for c in (*cls.__mro__, type(cls)) if c.__module__.startswith("torch.export")]
    return {c.__name__ for c in owned}


def _is_hint(value: Any) -> bool:
    return "_DimHint" in _class_names(value)


def _is_torch_dim(value: Any) -> bool:
    known = _class_names(value) & {"Dim", "_Dim", "_DerivedDim"}
    return bool(known) and hasattr(value, "min")


def _bounds(value: Any) -> dict[str, Any]:
    """Bounds that say something; without them torch gives 0 and infinity or the largest int."""
    low, high = getattr(value, "min", None), getattr(value, "max", None)
    return {
        "low": low if type(low) is int and low > 0 else None,
        "high": high if type(high) is int and high < sys.maxsize - 1 else None,
    }
