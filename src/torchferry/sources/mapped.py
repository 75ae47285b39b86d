"""The files of a checkpoint mapped into memory: its tensors are read when they are used."""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

from torchferry.dumper.safetensors_file import Stored, stored_tensors
from torchferry.errors import UsageError

__all__ = [
    "MappedFile",
    "checkpoint_files",
    "map_file",
    "mapped_tensors",
    "paged_out",
    "read_json",
]

_KINDS = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16,
    "I16": torch.int16, "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32,
    "F64": torch.float64, "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
_MAIN = "model.safetensors"  # the names that save_pretrained gives
_INDEX = "model.safetensors.index.json"
_STATM = Path("/proc/self/statm")
_MOST = 2**26  # bytes of mapped files in memory, beyond which their pages are given back
_TICK = 0.01  # seconds between two looks
_MAPPED = WeakSet[mmap.mmap]()  # all that are in use
_PAGEOUT = 21  # MADV_PAGEOUT of Linux 5.4: pages that were written to stay


@dataclass(frozen=True)
class MappedFile:
    """A ``.safetensors`` file in memory, private: what is written there never reaches the file.

    Attributes:
        path: the file.
        address: of its first byte.
        size: in bytes.
        tensors: its tensors by name, views that keep the file mapped.
    """

    path: Path
    address: int
    size: int
    tensors: dict[str, torch.Tensor] = field(repr=False)


def checkpoint_files(folder: Path) -> list[Path]:
    """The files of weights that transformers would read: one, or those that an index names.

    Raises:
        UsageError: there are none, or the index is damaged or names what is not there.
    """
    main, index = folder / _MAIN, folder / _INDEX
    if main.is_file():
        return [main]
    if not index.is_file():
        raise UsageError(f"{folder} has neither {_MAIN} nor {_INDEX}; save it by save_pretrained")
    try:
        found = {str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{index} is no index of weights: {error}") from error
    for name in sorted(found):
        if Path(name).name != name or not (folder / name).is_file():
            raise UsageError(f"{index} names {name!r}, which is no file in the folder")
    return [folder / name for name in sorted(found)]


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises:
        UsageError: it is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error


def map_file(path: Path) -> MappedFile:
    """Map a ``.safetensors`` file; only its header is read.

    Raises:
        UsageError: it is damaged, or holds a type that PyTorch does not have.
    """
    stored, _ = stored_tensors(path)
    with path.open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    _MAPPED.add(memory)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    tensors = {name: _view(memory, path, name, tensor) for name, tensor in stored.items()}
    return MappedFile(path, whole.data_ptr(), whole.numel(), tensors)


@contextmanager
def paged_out() -> Iterator[None]:
    """Keep few pages of mapped files in memory while a block runs, however much it reads of them.

    Of those that are mapped when it begins, and of those that it maps.

    A thread gives pages back to the system, which reads them again if they are needed. What was
    written to them stays, and so does everything where the system cannot do this (not Linux).
    Copies of the process do the same.
    """
    done = threading.Event()
    if sys.platform != "linux":
        yield
        return

    def give_back() -> None:
        base = _file_bytes()
        while not done.wait(_TICK):
            if _file_bytes() > base + _MOST:
                for memory in [*_MAPPED]:
                    with suppress(OSError):  # an older kernel
                        memory.madvise(_PAGEOUT)
                base = _file_bytes()

    def start() -> None:
        if not done.is_set():
            threading.Thread(target=give_back, daemon=True, name="torchferry-pages").start()

    start()
    os.register_at_fork(after_in_child=start)
    try:
        yield
    finally:
        done.set()


def _file_bytes() -> int:
    """Bytes of this process's memory that are pages of files."""
    return int(_STATM.read_text().split()[2]) * mmap.PAGESIZE


def mapped_tensors(files: Iterable[MappedFile]) -> dict[str, torch.Tensor]:
    """All tensors of several files, by name.

    Raises:
        UsageError: two files hold the same name.
    """
    found: dict[str, torch.Tensor] = {}
    for file in files:
        both = sorted(found.keys() & file.tensors.keys())
        if both:
            raise UsageError(f"{file.path} and another file of the checkpoint hold {both[0]!r}")
        found |= file.tensors
    return found


def _view(memory: mmap.mmap, path: Path, name: str, stored: Stored) -> torch.Tensor:
    dtype = _KINDS.get(stored.dtype)
    if dtype is None:
        raise UsageError(
            f"{path} holds {name!r} as {stored.dtype}, which cannot be used where it lies: "
            "use --weights copy"
        )
    count, rest = divmod(stored.end - stored.begin, dtype.itemsize)
    if rest or count != torch.Size(stored.shape).numel():
        raise UsageError(f"{path} is damaged: the bytes of {name!r} do not fit its shape")
    if count == 0:
        return torch.empty(stored.shape, dtype=dtype)
    # A storage of its own for every tensor: only tied weights share one.
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=stored.begin)
    aligned = stored.begin % dtype.itemsize == 0
    return (flat if aligned else flat.clone()).view(stored.shape)
