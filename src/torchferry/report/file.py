"""Output files: whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from torchferry.errors import UsageError

__all__ = ["write_whole"]


def write_whole(file: Path, text: str) -> None:
    r"""Write ``text`` as UTF-8 beside ``file``, then rename: a reader never sees half of it.

    An interrupted or failed write leaves what was there before. A link is followed; a device or
    a pipe (``/dev/stdout``) is written directly, as it cannot be renamed over. What UTF-8 cannot
    hold (half of a surrogate pair, from a file name in another encoding) is written ``\udcXX``.

    Raises:
        UsageError: the file cannot be written: no such folder, no permission, a full disk.
    """
    content = text.encode("utf-8", "backslashreplace")
    try:
        target = file.resolve()
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot write {file}: {reason}; give a file in a folder that exists and is writable"
        ) from error


def _replace(target: Path, content: bytes) -> None:
    # Not `tempfile`: its files are private (mode 600) and would stay so after the rename.
    part = target.with_name(f".torchferry-{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # else a crash after the rename may leave an empty file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
