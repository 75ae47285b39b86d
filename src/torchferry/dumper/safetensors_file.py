"""Dumps as ``.safetensors`` files, readable by every library that knows these.

The format: 8 bytes with the length of the header, the header as JSON, the bytes of the tensors
without a hole. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchferry.dumper.document import Source, properties
from torchferry.dumper.element import presented
from torchferry.dumper.part import PartFile, read_bytes, read_head
from torchferry.dumper.record import Entry
from torchferry.errors import UsageError

__all__ = ["SafetensorsSink", "Stored", "open_safetensors", "stored_tensors"]

# What every release of safetensors reads; others are stored as bits.
_KINDS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_NOTE = "complex numbers are stored as pairs, dtypes this format lacks as bits (U8)"

_ROOM = 2**16  # bytes kept free for the header, which is known last
_SMALL = 2**20  # bytes; a file below is written again, without the room that is left over
_LONGEST = 100_000_000  # bytes; longer headers are refused by safetensors


class SafetensorsSink:
    """Writes entries to one file as they come; the header at the end.

    Attributes:
        taken: the names of the tensors so far.
    """

    def __init__(self, path: Path) -> None:
        self.taken = {"__metadata__"}
        self._path = path
        self._part = PartFile(path)
        self._part.skip(_ROOM)
        self._header: dict[str, Any] = {}
        self._records: list[dict[str, Any]] = []

    def write(self, entry: Entry) -> None:
        """Append the buffers of an entry, and their checksums to its record.

        Raises:
            UsageError: the file cannot be written; it is then as before.
        """
        start = self._part.end
        found = {}
        try:
            for buffer, note in zip(entry.buffers, entry.record["buffers"], strict=True):
                offset, note["checksum"] = self._part.append(buffer.data)
                kind, axes = presented(buffer.dtype, _KINDS)
                found[note["name"]] = {
                    "dtype": _KINDS[kind],
                    "shape": [*buffer.shape, *axes],
                    "data_offsets": [offset - _ROOM, self._part.end - _ROOM],
                }
        except BaseException:
            self._part.cut(start)
            raise
        self._header.update(found)
        self._records.append(entry.record)

    def finish(self) -> dict[str, str]:
        """Write the header and give the file its name; return the metadata.

        Raises:
            UsageError: the file cannot be written, or its header is too long.
        """
        metadata = {**properties(self._records), "torchferry.note": _NOTE}
        text = json.dumps({"__metadata__": metadata, **self._header}, separators=(",", ":"))
        header = text.encode()
        if len(header) > _LONGEST:
            raise UsageError(f"{self._path}: too much for one .safetensors file; dump to a folder")
        if self._part.end < _SMALL or len(header) > _ROOM - 8:
            self._move(header)
        else:
            self._part.put_first(_framed(header, _ROOM - 8))
        self._part.close()
        self._part.rename()
        return metadata

    def discard(self) -> None:
        """Remove what was written."""
        self._part.discard()

    def _move(self, header: bytes) -> None:
        """Put the tensors behind a header of another length."""
        old, self._part = self._part, PartFile(self._path)
        try:
            self._part.append(_framed(header, -(-len(header) // 8) * 8))
            self._part.copy_from(old, _ROOM)
        finally:
            old.discard()


def _framed(header: bytes, length: int) -> bytes:
    return length.to_bytes(8, "little") + header.ljust(length)


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: type as the format writes it, shape, first byte and end."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def stored_tensors(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of any ``.safetensors`` file, and its metadata.

    Raises:
        UsageError: it is none, or cut short.
    """
    length = int.from_bytes(read_head(path, 8), "little")
    if length > _LONGEST or length + 8 > path.stat().st_size:
        raise UsageError(f"{path} is no .safetensors file, or it is cut short")
    try:
        header = json.loads(read_head(path, 8 + length)[8:].rstrip(b" "))
        metadata = header.pop("__metadata__", {})
        tensors = {
            str(name): _stored(tensor, 8 + length, path.stat().st_size)
            for name, tensor in header.items()
        }
        texts = {str(name): str(text) for name, text in metadata.items()}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(f"{path} is no .safetensors file, or a damaged one: {reason}") from error
    return tensors, texts


def open_safetensors(path: Path) -> Source:
    """A ``.safetensors`` file to read a dump from.

    Raises:
        UsageError: as `stored_tensors`.
    """
    tensors, metadata = stored_tensors(path)
    return Source(str(path), metadata, partial(_fetch, path, tensors))


def _fetch(path: Path, tensors: dict[str, Stored], name: str, count: int) -> torch.Tensor:
    found = tensors.get(name)
    if found is None or found.end - found.begin != count:
        raise UsageError(f"{path} is damaged: it holds no {name!r} of {count} bytes")
    return read_bytes(path, found.begin, count)


def _stored(tensor: dict[str, Any], start: int, size: int) -> Stored:
    begin, end = tensor["data_offsets"]
    shape = tuple(tensor["shape"])
    if not all(type(n) is int and 0 <= n < 2**62 for n in (begin, end, *shape)):
        raise ValueError(f"shape {shape}, offsets {begin} and {end}")
    if begin > end or start + end > size or (math.prod(shape) == 0 and end != begin):
        raise ValueError(f"a tensor from byte {start + begin} to {start + end} of {size}")
    return Stored(str(tensor["dtype"]), shape, start + begin, start + end)
