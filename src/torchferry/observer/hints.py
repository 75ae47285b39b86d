"""Dynamic shapes in the form torch.export takes them: names ↔ hints, nested as the values are."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from torch.export import Dim

from torchferry.dims.spec import is_axis, parse_axis
from torchferry.observer.naming import made_name
from torchferry.observer.tree import path_of
from torchferry.seams.pytorch import pytree
from torchferry.values.flatten import Path, register_pytrees

__all__ = ["fitting_shape", "nest_shapes", "use_dyn_not_str", "use_str_not_dyn"]


def use_dyn_not_str(dynamic_shapes: Any, default: Any = Dim.DYNAMIC) -> Any:
    """Replace the name of every axis by a hint; ``torch.export.export`` takes no names.

    Args:
        dynamic_shapes: names of axes, nested in anything: dicts, lists, tuples. What is no name
            stays as it is.
        default: the hint.

    Returns:
        The same nesting; what was given is not changed.

    >>> use_dyn_not_str({"x": {0: "batch", 1: "cache+seq"}, "flag": None, "y": [("batch", 3)]})
    {'x': {0: DimHint(DYNAMIC), 1: DimHint(DYNAMIC)}, 'flag': None, 'y': [(DimHint(DYNAMIC), 3)]}
    """
    return _replace(
        dynamic_shapes, lambda _, value: default if isinstance(value, str) else value, ()
    )


def use_str_not_dyn(dynamic_shapes: Any) -> Any:
    """Replace every hint and ``Dim`` by a name; ``torch.onnx.export`` gives it to the graph.

    A ``Dim`` has a name; that of a hint is made of the place, so it is the same every time. Hints
    do not say which axes are equal: each gets a name of its own. ``Dim.STATIC`` stays.

    Args:
        dynamic_shapes: hints, nested in anything; what is no hint and no ``Dim`` stays.

    Returns:
        The same nesting; what was given is not changed.

    >>> use_str_not_dyn({"x": {0: Dim.DYNAMIC, 1: Dim("width")}, "state": [[{2: Dim.AUTO}]]})
    {'x': {0: 'x_dim_0', 1: 'width'}, 'state': [[{2: 'state_0_0_dim_2'}]]}
    """

    def named(path: Path, value: Any) -> Any:
        if isinstance(value, str | int) or not is_axis(value):
            return value
        spec = parse_axis(value)
        if spec is None:
            return value
        return made_name(path) if spec.size is None else str(spec.size)

    return _replace(dynamic_shapes, named, ())


def _replace(shapes: Any, change: Callable[[Path, Any], Any], path: Path) -> Any:
    if isinstance(shapes, Mapping):
        items = [_replace(value, change, (*path, key)) for key, value in shapes.items()]
        return _like(shapes, items)
    if isinstance(shapes, list | tuple):
        return _like(shapes, [_replace(one, change, (*path, i)) for i, one in enumerate(shapes)])
    return change(path, shapes)


def _like(container: Any, items: list[Any]) -> Any:
    """The items in a container of the same type: torch.export compares the types."""
    cls: Any = type(container)
    node: Any = namedtuple if hasattr(cls, "_fields") else cls
    if node in pytree.BUILTIN_TYPES:
        _, context = pytree.SUPPORTED_NODES[node].flatten_fn(container)
        return pytree.SUPPORTED_NODES[node].unflatten_fn(items, context)
    if isinstance(container, Mapping):
        return dict(zip(container, items, strict=True))
    return items if isinstance(container, list) else tuple(items)


def nest_shapes(value: Any, prefix: Path, shape_of: Callable[[Path, Any], Any]) -> Any:
    """Dynamic shapes nested as torch.export compares them with a value.

    Containers of Python keep their type; caches and other registered classes become the list of
    their children.

    Args:
        value: an argument.
        prefix: where it stands: ``("past_key_values",)``.
        shape_of: called with the path and the value of each leaf, in order.

    >>> nest_shapes({"a": 1, "b": (2, None)}, ("x",), lambda path, leaf: f"{path[1:]} {leaf}")
    {'a': "('a',) 1", 'b': ("('b', 0) 2", "('b', 1) None")}
    """
    register_pytrees()
    pairs, spec = pytree.tree_flatten_with_path(value)
    leaves = iter([shape_of((*prefix, *path_of(keys)), leaf) for keys, leaf in pairs])

    def build(node: pytree.TreeSpec) -> Any:
        if node.is_leaf():
            return next(leaves)
        children = [build(child) for child in node.children()]
        if node.type in pytree.BUILTIN_TYPES:  # torch.export compares their types
            return pytree.SUPPORTED_NODES[node.type].unflatten_fn(children, node.context)
        return children

    return build(spec)


def fitting_shape(value: Any, shape: Any) -> Any:
    """The shape with None where the value is None.

    >>> fitting_shape({"a": 1, "b": None}, {"a": {0: "n"}, "b": {0: "n"}})
    {'a': {0: 'n'}, 'b': None}
    """
    if value is None:
        return None
    if type(value) is not type(shape) or not isinstance(value, dict | list | tuple):
        return shape
    if isinstance(value, dict):
        return _like(shape, [fitting_shape(value.get(key), one) for key, one in shape.items()])
    if len(value) != len(shape):  # torch.export says what does not fit
        return shape
    return _like(shape, [fitting_shape(v, one) for v, one in zip(value, shape, strict=True)])
