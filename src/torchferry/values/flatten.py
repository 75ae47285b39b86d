"""Nested values as a list of leaves with paths and a structure, and back.

A leaf is whatever no entry of `torchferry.values.kinds` takes apart: tensors, arrays, numbers,
strings, sets, modules, and None too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.seams.pytorch import pytree
from torchferry.values.kinds import (
    Kind,
    attempt,
    class_name,
    find_class,
    find_kind,
    imported_classes,
)

__all__ = [
    "LEAF",
    "Path",
    "Structure",
    "flatten",
    "flatten_with_containers",
    "map_leaves",
    "path_text",
    "register_pytrees",
    "structure_from_json",
    "structure_to_json",
    "unflatten",
]

Path = tuple[str | int, ...]
"""Where a leaf stands: ``("past_key_values", "key_cache", 0)``. The value itself is at ``()``."""


@dataclass(frozen=True)
class Structure:
    """What is left of a nested value without its leaves.

    Attributes:
        cls: the class of the container; ``None`` for a leaf.
        keys: one a child.
        children: their structures.
        context: what else rebuilds the container; hashable.
    """

    cls: type[Any] | None
    keys: tuple[Hashable, ...] = ()
    children: tuple[Structure, ...] = ()
    context: Hashable = None

    @property
    def leaf_count(self) -> int:
        """How many leaves `unflatten` takes."""
        return 1 if self.cls is None else sum(child.leaf_count for child in self.children)


LEAF = Structure(None)
"""The structure of a leaf."""


def flatten(value: Any) -> tuple[list[tuple[Path, Any]], Structure]:
    """Take a nested value apart.

    Returns:
        the leaves with their paths, in order, and what `unflatten` needs besides.

    Raises:
        UsageError: a container cannot be taken apart, as a cache of unknown things, or it contains
            itself.

    >>> leaves, structure = flatten({"x": 1, "y": (2, None)})
    >>> leaves
    [(('x',), 1), (('y', 0), 2), (('y', 1), None)]
    >>> unflatten([10, 20, 30], structure)
    {'x': 10, 'y': (20, 30)}
    """
    return flatten_with_containers(value)[:2]


def flatten_with_containers(
    value: Any,
) -> tuple[list[tuple[Path, Any]], Structure, list[tuple[Path, Any]]]:
    """As `flatten`, and the containers with their paths, each before what it holds.

    Raises:
        UsageError: as `flatten`.
    """
    leaves: list[tuple[Path, Any]] = []
    containers: list[tuple[Path, Any]] = []
    try:
        structure = _walk(value, (), leaves, containers)
    except RecursionError as error:
        raise UsageError("the value contains itself, or is too deep") from error
    return leaves, structure, containers


# No function inside `flatten`: one that calls itself is a cycle, which would keep the leaves, and
# so the tensors of every call that is watched, until Python looks for cycles.
def _walk(
    value: Any, path: Path, leaves: list[tuple[Path, Any]], containers: list[tuple[Path, Any]]
) -> Structure:
    cls = type(value)
    kind = find_kind(cls)
    if kind is None:
        leaves.append((path, value))
        return LEAF
    containers.append((path, value))
    parts, error = attempt(kind.flatten, value)
    if error is not None:
        where = f" at {path_text(path)}" if path else ""
        raise UsageError(
            f"the {cls.__name__}{where} cannot be taken apart: {error or repr(error)}"
        ) from error
    children, context = parts
    structures = tuple(
        _walk(child, (*path, _step(key)), leaves, containers) for key, child in children.items()
    )
    return Structure(cls, tuple(children), structures, context)


def unflatten(
    leaves: Iterable[Any], structure: Structure, shared: Mapping[int, int] | None = None
) -> Any:
    """Put a nested value together again.

    Attributes that a list, a dictionary or a dataclass had besides its items or fields are not
    there again; `torchferry.values.clone` keeps them.

    Args:
        leaves: one value a leaf, in the order of `flatten`, without paths.
        structure: as `flatten` gave it.
        shared: containers that are one object with an earlier one, both by their number in the
            order of `flatten_with_containers`.

    Raises:
        UsageError: there are more or fewer leaves than the structure has, or a container cannot
            be made of them, as when the structure comes from a damaged file.
    """
    given = list(leaves)
    if len(given) != structure.leaf_count:
        raise UsageError(
            f"unflatten: the structure has {structure.leaf_count} leaves, {len(given)} were given"
        )
    return _rebuild(iter(given), structure, [], shared or {})


def _rebuild(
    leaves: Iterator[Any], structure: Structure, made: list[Any], shared: Mapping[int, int]
) -> Any:
    if structure.cls is None:
        return next(leaves)
    number = len(made)
    made.append(LEAF)  # until it is made
    children = [_rebuild(leaves, child, made, shared) for child in structure.children]
    keyed = dict(zip(structure.keys, children, strict=True))
    kind = _kind_of(structure.cls)
    made[number], error = attempt(kind.unflatten, structure.cls, keyed, structure.context)
    if error is not None:
        raise UsageError(
            f"{class_name(structure.cls)} cannot be put together from this structure: {error!r}"
        ) from error
    earlier = shared.get(number)
    if earlier is not None:
        if not 0 <= earlier < number or type(made[earlier]) is not structure.cls:
            raise UsageError(f"{class_name(structure.cls)} is not one with container {earlier}")
        made[number] = made[earlier]
    return made[number]


def map_leaves(fn: Callable[[Any], Any], value: Any) -> Any:
    """The same nested value with ``fn`` applied to every leaf, None included.

    An object that stands in several places stays one.

    >>> map_leaves(lambda x: x + 1, [1, {"a": 2}])
    [2, {'a': 3}]
    """
    leaves, structure = flatten(value)
    changed: dict[int, Any] = {}
    for _, leaf in leaves:
        if id(leaf) not in changed:
            changed[id(leaf)] = fn(leaf)
    return unflatten([changed[id(leaf)] for _, leaf in leaves], structure)


def path_text(path: Path) -> str:
    """A path as people write it.

    >>> path_text(("past_key_values", "key_cache", 0))
    'past_key_values.key_cache.0'
    """
    return ".".join(map(str, path))


def structure_to_json(structure: Structure) -> Any:
    """The structure as JSON types: ``None`` for a leaf, else a dictionary.

    ``type`` is the class as ``module:qualname``; ``keys`` is left out for ``0, 1, 2 ...`` and
    ``context`` when there is none.

    Raises:
        UsageError: a key or a context has no JSON form, as a dictionary whose key is a tensor.

    >>> structure_to_json(flatten((1, 2))[1])
    {'type': 'builtins:tuple', 'children': [None, None]}
    """
    if structure.cls is None:
        return None
    name = class_name(structure.cls)
    found: dict[str, Any] = {"type": name}
    if structure.keys != tuple(range(len(structure.keys))):
        found["keys"] = [_to_json(key, name) for key in structure.keys]
    if structure.context is not None:
        found["context"] = _to_json(structure.context, name)
    found["children"] = [structure_to_json(child) for child in structure.children]
    return found


def structure_from_json(data: Any, find: Callable[[str], type[Any]] = find_class) -> Structure:
    """The structure that `structure_to_json` wrote.

    Args:
        data: as it was read.
        find: gives the class of a name, as `find_class`, or another one for it.

    Raises:
        UsageError: the data is no structure, or names a class that may not be made from a file.

    >>> structure_from_json({"type": "builtins:list", "children": [None]}).leaf_count
    1
    """
    if data is None:
        return LEAF
    if not isinstance(data, Mapping) or not isinstance(data.get("children"), list):
        raise UsageError(f"this is no structure of nested values: {str(data)[:80]}")
    children = tuple(structure_from_json(child, find) for child in data["children"])
    keys = data.get("keys", list(range(len(children))))
    if not isinstance(keys, list) or len(keys) != len(children):
        raise UsageError(f"{data.get('type')}: {len(children)} children need as many keys")
    return Structure(
        find(str(data.get("type"))),
        tuple(_from_json(key, find) for key in keys),
        children,
        _from_json(data.get("context"), find),
    )


def register_pytrees(*classes: type[Any]) -> tuple[type[Any], ...]:
    """Let PyTorch's pytrees, and so torch.export, see inside classes this room knows.

    What is registered stays, so this may be called again and again: without classes, call it when
    the values are there, as a library imported later is not seen. Key paths are
    ``MappingKey(name)``; without classes, those get them too that another library registered
    without any (``ModelOutput`` before transformers 5).

    Args:
        classes: dataclasses or registered classes; without any, every registered class that is
            imported by now, which are the caches of transformers.

    Returns:
        the classes that another library had registered before; theirs stays in force. The one
        transformers has for `DynamicCache` puts constants into exported graphs.

    Raises:
        UsageError: a class that holds nothing this room knows.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Pair:
    ...     left: torch.Tensor
    ...     right: torch.Tensor
    >>> register_pytrees(Pair)
    ()
    >>> len(pytree.tree_leaves(Pair(torch.ones(2), torch.ones(3))))
    2
    """
    foreign = []
    for cls in classes or imported_classes():
        kind = _kind_of(cls)
        node = pytree.SUPPORTED_NODES.get(cls)
        if node is None and kind.pytree:
            _register_pytree(cls, kind)
        elif node is not None and getattr(node.flatten_fn, "func", None) is not _pytree_flatten:
            foreign.append(cls)
    if not classes:
        _give_keys()
    return tuple(foreign)


def _give_keys() -> None:
    for cls, node in list(pytree.SUPPORTED_NODES.items()):
        kind = find_kind(cls) if node.flatten_with_keys_fn is None else None
        if kind is not None:
            keyed = partial(_foreign_flatten_with_keys, kind, node.flatten_fn)
            pytree.SUPPORTED_NODES[cls] = node._replace(flatten_with_keys_fn=keyed)


def _foreign_flatten_with_keys(
    kind: Kind, flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]], value: Any
) -> tuple[list[Any], Any]:
    values, context = flatten_fn(value)
    children, names = list(values), list(kind.flatten(value)[0])
    keys: Iterable[Any] = map(pytree.MappingKey, names)
    if len(names) != len(children):
        keys = map(pytree.SequenceKey, range(len(children)))
    return list(zip(keys, children, strict=True)), context


def _register_pytree(cls: type[Any], kind: Kind) -> None:
    pytree.register_pytree_node(
        cls,
        partial(_pytree_flatten, kind),
        partial(_pytree_unflatten, kind, cls),
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        to_dumpable_context=partial(_to_json, where=class_name(cls)),
        from_dumpable_context=_from_json,
        flatten_with_keys_fn=partial(_pytree_flatten_with_keys, kind),
    )


def _pytree_flatten(kind: Kind, value: Any) -> tuple[list[Any], Any]:
    children, context = kind.flatten(value)
    return list(children.values()), (tuple(children), context)


def _pytree_flatten_with_keys(kind: Kind, value: Any) -> tuple[list[Any], Any]:
    children, context = kind.flatten(value)
    keyed: list[tuple[Any, Any]] = [(pytree.MappingKey(k), v) for k, v in children.items()]
    return keyed, (tuple(children), context)


def _pytree_unflatten(kind: Kind, cls: type[Any], values: Iterable[Any], context: Any) -> Any:
    keys, inner = context
    return kind.unflatten(cls, dict(zip(keys, values, strict=True)), inner)


def _kind_of(cls: type[Any]) -> Kind:
    kind = find_kind(cls)
    if kind is None:
        raise UsageError(
            f"{class_name(cls)} is no container torchferry knows; "
            "teach it with torchferry.values.kinds.register"
        )
    return kind


def _step(key: Hashable) -> str | int:
    return key if isinstance(key, str | int) else str(key)


def _to_json(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_to_json(item, where) for item in value]
    if isinstance(value, type):
        return {"class": class_name(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    text = repr(value)
    raise UsageError(f"{where} holds a {type(value).__name__} that JSON cannot: {text[:80]}")


def _from_json(value: Any, find: Callable[[str], type[Any]] = find_class) -> Any:
    match value:
        case list():
            return tuple(_from_json(item, find) for item in value)
        case {"class": str(name)}:
            return find(name)
        case {"dtype": str(name)} if isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        case dict():
            raise UsageError(f"this is no key or context: {dict(islice(value.items(), 3))}")
    return value
