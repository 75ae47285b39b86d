"""A file written beside its name and renamed when it is whole; and reading bytes back."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
import torch

from torchferry.errors import UsageError

__all__ = ["PartFile", "checksum", "read_bytes", "read_head", "remove"]

_LARGE = 2**16  # bytes
_ROW = 4096  # bytes
_BLOCK = 128  # rows: half a MiB, which stays in the cache of a processor while it is read twice
_ODD = 0x9E3779B9  # 2**32 divided by the golden ratio: its powers look random
_WEIGHTS = np.multiply.accumulate(np.full(_BLOCK, _ODD, "<u4"), dtype="<u4")  # all odd


def checksum(data: memoryview | bytes) -> int:
    """The CRC-32 of less than 64 KiB; of more, the CRC-32 of sums of what it holds.

    CRC-32 alone halves the rate of writing to a file that stays in memory. So the bytes are taken
    as unsigned little-endian numbers in rows of 4096 bytes and blocks of up to 128 rows. Each
    block counts with the sums of its rows, in numbers of 8 bytes modulo 2**64, and the sums of
    its columns, in numbers of 4 bytes modulo 2**32, each row times a power of an odd number.
    Bytes that do not fill a row come first, as they are.

    Any change within one row or one column alters a sum, and so does an exchange of two words.
    Another change is missed only if it leaves all the sums of rows and of columns as they were,
    or by one chance in 2**32.

    >>> checksum(b"abc") == zlib.crc32(b"abc")
    True
    """
    if len(data) < _LARGE:
        return zlib.crc32(data)
    end = len(data) // _ROW * _ROW
    number = zlib.crc32(memoryview(data)[end:])
    rows = np.frombuffer(data, "<u8", end // 8).reshape(-1, _ROW // 8)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        # einsum is several times as fast as sum() and @ here, which have no BLAS for integers
        number = zlib.crc32(np.einsum("ij->i", block).data, number)
        columns = np.einsum("ij,i->j", block.view("<u4"), _WEIGHTS[: len(block)])
        number = zlib.crc32(columns.data, number)
    return number


class PartFile:
    """A file in the making.

    Raises:
        UsageError: from every method: the file cannot be written, as on a full disk.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder")
        self._path = path
        self._part = path.with_name(f".torchferry-{secrets.token_hex(8)}.part")
        with self._said():
            self._stream: IO[bytes] = self._part.open("x+b")

    @property
    def end(self) -> int:
        """Bytes so far."""
        return self._stream.tell()

    def append(self, data: memoryview | bytes, unit: int = 1) -> tuple[int, int]:
        """Write at the next multiple of ``unit`` bytes.

        Returns:
            the offset of the first byte, and the `checksum` of all.
        """
        with self._said():
            offset = -(-self.end // unit) * unit
            self._stream.seek(offset)
            number = checksum(data)
            self._stream.write(data)
            return offset, number

    def skip(self, count: int) -> None:
        """Leave room, to be written with `put_first`."""
        self._stream.seek(count, 1)

    def put_first(self, data: bytes) -> None:
        """Write over the first bytes."""
        with self._said():
            end = self.end
            self._stream.seek(0)
            self._stream.write(data)
            self._stream.seek(end)

    def copy_from(self, other: PartFile, start: int) -> None:
        """Append what another file has behind ``start``."""
        with self._said():
            other._stream.flush()
            end = other.end
            other._stream.seek(start)
            while other.end < end:
                self._stream.write(other._stream.read(min(2**22, end - other.end)))

    def cut(self, end: int) -> None:
        """Forget what stands behind ``end``."""
        with self._said():
            self._stream.seek(end)
            self._stream.truncate()

    def close(self) -> None:
        """Write out what is buffered; `rename` is left to do."""
        with self._said():
            self._stream.close()

    def rename(self) -> None:
        """Give the closed file its name; a file of that name is replaced."""
        with self._said():
            self._part.replace(self._path)

    def discard(self) -> None:
        """Remove the file, unless it has its name; this never fails."""
        with suppress(OSError):  # a full disk: the error before this one is told
            self._stream.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file, if there is one.

    Raises:
        UsageError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot remove {path}: {error.strerror or error}") from error


def read_bytes(path: Path, offset: int, count: int) -> torch.Tensor:
    """Bytes of a file in memory of their own: uint8, one axis.

    Raises:
        UsageError: the file cannot be read, or has not so many: nothing is allocated then.
    """
    if path.exists() and not path.is_file():  # a pipe would wait for ever
        raise UsageError(f"cannot read {path}: it is not a file")
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if not 0 <= offset <= offset + count <= size:
                raise UsageError(
                    f"{path} is cut short: it has {size} bytes, and a tensor ends at byte "
                    f"{offset + count}"
                )
            raw = torch.empty(count, dtype=torch.uint8)
            stream.seek(offset)
            read = stream.readinto(raw.numpy().data) if count else 0
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if read != count:
        raise UsageError(f"{path} was cut short while it was read")
    return raw


def read_head(path: Path, count: int) -> bytes:
    """The first bytes of a file, fewer where it ends.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
