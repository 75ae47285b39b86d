"""One entry of a dump: a nested value as JSON and buffers, and back.

The JSON holds the key, the structure (`torchferry.values.structure_to_json`), one item a leaf,
and for every buffer its name, its size and its `checksum`. It is data: nothing in it is
run, and only containers that torchferry knows are made of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchferry.dumper.memory import Buffer, Memory, memory_of, pack
from torchferry.dumper.part import checksum
from torchferry.dumper.plain import plain_from_json, plain_to_json
from torchferry.dumper.region import Region, array_in, tensor_in
from torchferry.dumper.told import lost_of_container, lost_of_tensor, shared_containers
from torchferry.errors import UsageError
from torchferry.values import (
    Path,
    Structure,
    path_text,
    string_type,
    structure_from_json,
    structure_to_json,
    unflatten,
)
from torchferry.values.flatten import LEAF, flatten_with_containers
from torchferry.values.kinds import find_class

__all__ = [
    "Entry",
    "Fetch",
    "Key",
    "decode",
    "encode",
    "is_key",
    "key_from_json",
    "key_text",
    "unique_name",
    "unknown_classes",
]

Key = str | tuple[str | int, ...]
"""What a value is stored under: ``("model.decoder", 0, "I")``."""

Fetch = Callable[[str, int], torch.Tensor]
"""``fetch(name, nbytes)`` reads a buffer into memory of its own: uint8, one axis.

It raises UsageError where the file has no such buffer or one of another size, before it allocates.
"""

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_ARRAYS = (np.ndarray, np.memmap)
_EXACT = (type(None), bool, int, float, str, tuple, torch.dtype)

# What libraries raise of arguments that no file written here has.
_UNFIT = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A value ready to be written.

    Attributes:
        record: the JSON; whoever writes the buffers adds ``checksum`` to each of its ``buffers``.
        buffers: mostly the memory of the value itself: leave it unchanged until it is written.
        views: name and region of every tensor, for files that show tensors to other tools.
        memories: what keeps the buffers alive.
    """

    record: dict[str, Any]
    buffers: list[Buffer]
    views: list[tuple[str, Region]]
    memories: list[Memory]


def encode(key: Key, value: Any, taken: set[str]) -> Entry:
    """Take a value apart.

    Args:
        key: what it is stored under.
        value: nested containers of tensors, arrays, numbers, strings, None, dtypes, devices.
        taken: names of the file so far; the new ones are added.

    Raises:
        UsageError: the key is none, or the value holds something a dump cannot store: where it
            is and its type.
    """
    title = f"the value of {key!r}" if key != () else "the value"
    if not is_key(key):
        raise UsageError(f"{key!r} is no key of a dump; give a string or a tuple of str and int")
    try:
        leaves, structure, containers = flatten_with_containers(value)
        described = _described(structure)
        _check_attributes(containers)
    except RecursionError as error:
        raise UsageError(f"cannot store {title}: it is too deep") from error
    except UsageError as error:
        raise UsageError(f"cannot store {title}: {error}") from error
    found = _Leaves(key, title)
    for path, leaf in leaves:
        found.add(path, leaf)
    try:
        regions, buffers = pack(found.memories)
    except UsageError as error:
        raise UsageError(f"cannot store {title}: a tensor is {error}") from error
    for place, region in zip(found.places, regions, strict=True):
        place.update(region.to_json())
    own = [unique_name(_name(key, path), taken) for path in found.paths]
    record = {
        "key": key,
        "structure": described,
        "leaves": found.items,
        "buffers": [{"name": own[buffer.first], "bytes": len(buffer.data)} for buffer in buffers],
    }
    shared = shared_containers(containers)
    if shared:
        record["shared"] = shared
    return Entry(record, buffers, list(zip(own, regions, strict=True)), found.memories)


def decode(record: Any, fetch: Fetch, find: Callable[[str], type[Any]] = find_class) -> Any:
    """Put the value of an entry together, on the CPU.

    Args:
        record: as it was read.
        fetch: reads its buffers.
        find: gives the class of a name; see `torchferry.values.structure_from_json`.

    Raises:
        UsageError: the record is none that `encode` made, or the bytes are not those written.
    """
    try:
        raws = [_read(buffer, fetch) for buffer in record["buffers"]]
        structure = structure_from_json(record["structure"], find)
        made: list[Any] = []
        sizes = [raw.numel() for raw in raws]
        for item in record["leaves"]:
            made.append(_leaf(item, raws, sizes, made))
        return unflatten(made, structure, dict(record.get("shared", ())))
    except _UNFIT as error:
        raise UsageError(f"an entry of this dump is damaged: {error!r}"[:300]) from error


def unknown_classes(structure: Any) -> list[str]:
    """The classes a structure names that are not found, or may not be made from a file.

    Args:
        structure: JSON, of a record.
    """
    found: dict[str, None] = {}

    def note(name: str) -> type[Any]:
        try:
            return find_class(name)
        except UsageError:
            found[name] = None
            return dict

    structure_from_json(structure, note)
    return list(found)


def key_from_json(data: Any) -> Key:
    """The key of a record.

    Raises:
        UsageError: it is none.

    >>> key_from_json(["model", 0, "I"])
    ('model', 0, 'I')
    """
    key = tuple(data) if isinstance(data, list) else data
    if not is_key(key):
        raise UsageError(f"this is no key of a dump: {str(data)[:80]}")
    found: Key = key
    return found


def key_text(key: Key) -> str:
    """A key in names of tensors and tables.

    >>> key_text(("model.decoder", 0, "I")), key_text("mask")
    ('model.decoder.0.I', 'mask')
    """
    return key if isinstance(key, str) else path_text(key)


class _Leaves:
    """The JSON of leaves, and the memories of the tensors among them."""

    def __init__(self, key: Key, title: str) -> None:
        self.key, self.title = key, title
        self.items: list[Any] = []
        self.memories: list[Memory] = []
        self.places: list[dict[str, Any]] = []
        self.paths: list[Path] = []
        self._seen: dict[int, int] = {}
        self._copies: dict[int, torch.UntypedStorage] = {}

    def add(self, path: Path, leaf: Any) -> None:
        try:
            self.items.append(self._item(path, leaf))
        except UsageError as error:
            where = f"{path_text(path)} of {self.title}" if path else self.title
            raise UsageError(
                f"cannot store {where}: a {type(leaf).__name__} {string_type(leaf, True)} is "
                f"{error}"
            ) from error

    def _item(self, path: Path, leaf: Any) -> Any:
        if isinstance(leaf, np.generic):
            return {"scalar": self._place(path, np.asarray(leaf))}
        is_tensor = type(leaf) in _TENSORS
        if not is_tensor and type(leaf) not in _ARRAYS:
            return plain_to_json(leaf)
        if id(leaf) in self._seen:
            return {"same": self._seen[id(leaf)]}
        place = self._place(path, leaf)
        self._seen[id(leaf)] = len(self.items)
        if not is_tensor:
            return {"array": place}
        lost = lost_of_tensor(leaf)
        if lost:
            raise UsageError(f"one with {', '.join(lost)}, which a dump does not keep: remove it")
        if leaf.requires_grad:
            place["requires_grad"] = True
        return {"parameter" if isinstance(leaf, torch.nn.Parameter) else "tensor": place}

    def _place(self, path: Path, value: Any) -> dict[str, Any]:
        self.memories.append(memory_of(value, self._copies))
        self.paths.append(path)
        self.places.append({})
        return self.places[-1]


def _leaf(item: Any, raws: list[torch.Tensor], sizes: list[int], made: list[Any]) -> Any:
    match item:
        case {"tensor": place} | {"parameter": place}:
            tensor = tensor_in(raws[place["buffer"]], Region.from_json(place, sizes))
            needs_grad = place.get("requires_grad") is True
            if "parameter" in item:
                return torch.nn.Parameter(tensor, needs_grad)
            return tensor.requires_grad_(needs_grad)
        case {"array": place} | {"scalar": place}:
            array = array_in(raws[place["buffer"]], Region.from_json(place, sizes))
            return array[()] if "scalar" in item else array
        case {"same": int(index)} if 0 <= index < len(made):
            return made[index]
    return plain_from_json(item)


def _read(buffer: Mapping[str, Any], fetch: Fetch) -> torch.Tensor:
    name = buffer["name"]
    raw = fetch(name, buffer["bytes"])
    if checksum(raw.numpy().data) != buffer["checksum"]:
        raise UsageError(f"the bytes of {name!r} are not those that were written")
    return raw


def _described(structure: Structure) -> Any:
    """The structure as JSON that gives back the same.

    Raises:
        UsageError: it does not: a key of a type of its own, a class that cannot be found again.
    """
    if structure is LEAF:
        return None
    _check_exact(structure)
    described = structure_to_json(structure)
    again = structure_from_json(json.loads(json.dumps(described)))
    if again != structure:
        raise UsageError("its keys or settings do not survive JSON")
    return described


def _check_attributes(containers: list[tuple[Path, Any]]) -> None:
    """Refuse what would be lost without a word.

    Raises:
        UsageError: a container has attributes that are no items of it.
    """
    for path, value in containers:
        lost = lost_of_container(value)
        if lost:
            where = f"{path_text(path)} is " if path else ""
            names = ", ".join(lost)
            raise UsageError(
                f"{where}a {type(value).__name__} with attributes that are no items or fields of "
                f"it ({names:.80}); give a plain one, or teach torchferry the class with "
                "torchferry.values.kinds.register"
            )


def _check_exact(structure: Structure) -> None:
    for item in (*structure.keys, structure.context):
        _check_type(item)
    for child in structure.children:
        _check_exact(child)


def _check_type(item: Hashable) -> None:
    if isinstance(item, tuple) and type(item) is tuple:
        for part in item:
            _check_type(part)
    elif type(item) not in _EXACT and not isinstance(item, type):
        raise UsageError(f"a key or setting {item!r:.80} is a {type(item).__name__}")


def is_key(key: Any) -> bool:
    """Whether a value may be stored under this: a string or a tuple of strings and integers."""
    parts = key if type(key) is tuple else (key,)
    allowed = (str, int) if type(key) is tuple else (str,)
    return all(type(part) in allowed for part in parts)


def unique_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; it is then taken.

    >>> unique_name("x", {"x"})
    'x#2'
    """
    count, unique = 1, name
    while unique in taken:
        count += 1
        unique = f"{name}#{count}"
    taken.add(unique)
    return unique


def _name(key: Key, path: Path) -> str:
    name = ".".join(part for part in (key_text(key), path_text(path)) if part) or "value"
    return name.encode(errors="backslashreplace").decode()  # a file takes no half characters
