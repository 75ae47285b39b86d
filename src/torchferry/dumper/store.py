"""The face of the room: write a dump, read it back.

A dump is one ``.onnx`` file (with ``NAME.onnx_data`` beside it), one ``.safetensors`` file, or a
folder. All three hold the same: entries by key, each a nested value with its structure, and a
checksum of everything. Loading runs nothing that stands in the file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import onnx

from torchferry.dumper.document import Source, read_records
from torchferry.dumper.folder import FolderSink, open_folder
from torchferry.dumper.onnx_file import OnnxSink, open_onnx
from torchferry.dumper.record import (
    Entry,
    Key,
    decode,
    encode,
    is_key,
    key_from_json,
    unknown_classes,
)
from torchferry.dumper.safetensors_file import SafetensorsSink, open_safetensors
from torchferry.errors import UsageError
from torchferry.graph.outline import read_proto
from torchferry.values.kinds import find_class

__all__ = [
    "DumpWriter",
    "Key",
    "create_input_tensors_from_onnx_model",
    "create_onnx_model_from_input_tensors",
    "open_dump",
    "read_dump",
    "read_entries",
]

_log = logging.getLogger("torchferry")


class DumpWriter(Protocol):
    """What `open_dump` gives; several threads may use it."""

    def add(self, key: Key, value: Any) -> int:
        """Store a value.

        It is read now and may change afterwards. What shares memory within the value shares it
        again when it is read; values of two calls never do.

        Args:
            key: a string, or a tuple of strings and integers; once only.
            value: nested containers (caches and dataclasses too) of tensors, numpy arrays and
                scalars, numbers, strings, None, dtypes, devices. A tensor of another device is
                read back on the CPU.

        Returns:
            bytes of tensor data written; shared memory counts once.

        Raises:
            UsageError: the key is none or taken, the value holds something else (the message says
                where), or the file cannot be written. Nothing of the value is stored then.
        """
        ...


def open_dump(path: Path | str) -> AbstractContextManager[DumpWriter]:
    """Write a dump.

    A file is written beside its name and gets it when the block ends; if the block raises, what
    was written is removed and an earlier file stays. A folder is written as the block runs: the
    entries that are complete can be read whatever happens.

    Args:
        path: ``NAME.onnx``, ``NAME.safetensors``, or else a folder, new or empty.

    Raises:
        UsageError: it cannot be written.

    >>> import torch
    >>> with open_dump("calls.safetensors") as dump:
    ...     dump.add(("model", 0, "I"), ((torch.zeros(2, 3),), {"scale": 0.5}))
    24
    >>> read_dump("calls.safetensors")
    {('model', 0, 'I'): ((tensor([[0., 0., 0.],
            [0., 0., 0.]]),), {'scale': 0.5})}
    """
    return _writing(Path(path))


@contextmanager
def _writing(path: Path) -> Iterator[DumpWriter]:
    sink = _sink(path)
    try:
        yield _Writer(sink)
        sink.finish()
    finally:
        sink.discard()  # does nothing to what is finished


def read_dump(path: Path | str) -> dict[Key, Any]:
    """All values of a dump by key, in the order they were written.

    Args:
        path: what `open_dump` or `create_onnx_model_from_input_tensors` wrote. A value of the
            latter that is no dictionary by such keys stands under the key ``()``.

    Raises:
        UsageError: there is no such dump, or it is damaged or foreign.
    """
    value, whole = _read(_sources(Path(path)))
    if whole and not _is_by_key(value):
        return {(): value}
    found: dict[Key, Any] = value
    return found


def read_entries(path: Path | str, *, stand_ins: bool = False) -> Iterator[tuple[Key, Any]]:
    """The values of a dump one by one, so that only one need be in memory; as `read_dump`.

    Args:
        path: see `read_dump`.
        stand_ins: what becomes of an entry with a container whose class is not found, as when the
            module that defines it was not imported. Without, it is left out, with a warning in
            the log; with, a subclass of ``dict`` that has the name of the class stands for it.

    Raises:
        UsageError: there is no such dump, or it is damaged or foreign.
    """
    for source in _sources(Path(path)):
        records, whole = read_records(source)
        for record in records:
            unknown = [] if stand_ins else _unknown(source, record)
            if unknown:
                _log.warning(
                    "%s: the entry %s is left out: the class %s is not found; import its module",
                    source.path, str(record["key"])[:80], unknown[0],
                )  # fmt: skip
                continue
            key, value = _entry(source, record, _or_stand_in if stand_ins else find_class)
            if whole and _is_by_key(value):
                yield from value.items()
            else:
                yield key, value


def create_onnx_model_from_input_tensors(
    inputs: Any, path: Path | str | None = None
) -> onnx.ModelProto:
    """Nested tensors as an ONNX model without inputs, whose outputs they are.

    Args:
        inputs: any value that `DumpWriter.add` takes; what shares memory in it is stored once.
        path: also write it there, ``NAME.onnx``; large tensors then stand in ``NAME.onnx_data``.

    Raises:
        UsageError: the value holds what cannot be stored, the file cannot be written, or without
            a path the tensors are more than 2 GiB.

    >>> import torch
    >>> model = create_onnx_model_from_input_tensors({"x": torch.zeros(2), "n": 3})
    >>> [output.name for output in model.graph.output]
    ['x']
    >>> create_input_tensors_from_onnx_model(model)
    {'x': tensor([0., 0.]), 'n': 3}
    """
    sink = OnnxSink(None if path is None else Path(path))
    try:
        entry = encode((), inputs, sink.taken)
        sink.write(entry)
        return sink.finish(whole=True)
    finally:
        sink.discard()


def create_input_tensors_from_onnx_model(source: Path | str | onnx.ModelProto) -> Any:
    """The value of `create_onnx_model_from_input_tensors`, or the dictionary of a dump.

    Args:
        source: the model, or the path of it or of any other dump.

    Raises:
        UsageError: it is no dump, or damaged.
    """
    if not isinstance(source, onnx.ModelProto | Path | str):
        raise UsageError(
            "create_input_tensors_from_onnx_model takes a path or an onnx.ModelProto, not a "
            f"{type(source).__name__}"
        )
    if isinstance(source, onnx.ModelProto):
        return _read([open_onnx(source, None)])[0]
    return _read(_sources(Path(source)))[0]


class _Sink(Protocol):
    taken: set[str]

    def write(self, entry: Entry) -> None: ...

    def finish(self) -> object: ...

    def discard(self) -> None: ...


class _Writer:
    """A `DumpWriter` over any of the three formats."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._keys: set[Key] = set()
        self._lock = threading.Lock()

    def add(self, key: Key, value: Any) -> int:
        with self._lock:
            if is_key(key) and key in self._keys:
                raise UsageError(f"the key {key!r} is in this dump already; give another")
            entry = encode(key, value, self._sink.taken)
            self._sink.write(entry)
            self._keys.add(key)
        return sum(len(buffer.data) for buffer in entry.buffers)


def _sink(path: Path) -> _Sink:
    if path.suffix == ".onnx":
        return OnnxSink(path)
    return SafetensorsSink(path) if path.suffix == ".safetensors" else FolderSink(path)


def _sources(path: Path) -> list[Source]:
    if path.is_dir():
        return open_folder(path)
    if path.suffix == ".onnx":
        return [open_onnx(read_proto(path), path)]
    if path.suffix == ".safetensors":
        return [open_safetensors(path)]
    if path.exists():
        raise UsageError(f"{path} is no dump: give a .onnx or .safetensors file, or a folder")
    raise UsageError(f"there is no file or folder {path}")


def _read(sources: list[Source]) -> tuple[Any, bool]:
    values: dict[Key, Any] = {}
    for source in sources:
        records, whole = read_records(source)
        for record in records:
            key, value = _entry(source, record)
            if whole:
                return value, True
            if key in values:
                raise UsageError(f"{source.path} is damaged: a second entry has the key {key!r}")
            values[key] = value
    return values, False


def _entry(
    source: Source, record: Any, find: Callable[[str], type[Any]] = find_class
) -> tuple[Key, Any]:
    try:
        key = key_from_json(record["key"])
        return key, decode(record, source.fetch, find)
    except UsageError as error:
        raise UsageError(f"cannot read {source.path}: {error}") from error
    except (LookupError, TypeError) as error:
        raise UsageError(f"{source.path} is damaged: {error!r}") from error


def _unknown(source: Source, record: Any) -> list[str]:
    try:
        return unknown_classes(record["structure"])
    except UsageError as error:
        raise UsageError(f"cannot read {source.path}: {error}") from error
    except (LookupError, RecursionError, TypeError) as error:
        raise UsageError(f"{source.path} is damaged: {error!r}") from error


def _or_stand_in(name: str) -> type[Any]:
    """The class of a name, or a new one for it: of dictionaries, as nothing is known of it."""
    try:
        return find_class(name)
    except UsageError:
        module, _, qualname = name.rpartition(":")
        return type(qualname.rpartition(".")[2] or name, (dict,), {"__module__": module})


def _is_by_key(value: Any) -> bool:
    return type(value) is dict and all(is_key(key) for key in value)
