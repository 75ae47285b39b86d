"""Dumps as folders: one ``.safetensors`` file an entry, each written at once and whole by itself.

``index.json`` comes last: it lists the files, so that one that is lost is missed. A folder
without it was not finished; what is in it can be read.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from torchferry.dumper.document import CHECKSUM, Source
from torchferry.dumper.part import PartFile, read_head
from torchferry.dumper.record import Entry
from torchferry.dumper.safetensors_file import SafetensorsSink, open_safetensors
from torchferry.errors import UsageError

__all__ = ["FolderSink", "open_folder"]

_log = logging.getLogger("torchferry")

_INDEX = "index.json"
_VERSION = 1
_LONGEST = 2**30  # bytes of an index


class FolderSink:
    """Writes every entry to a file of its own.

    Attributes:
        taken: the names of the tensors of one file.
    """

    def __init__(self, path: Path) -> None:
        self.taken: set[str] = set()
        self._path = path
        self._sums: dict[str, str] = {}
        try:
            path.mkdir(exist_ok=True)
            used = any(path.iterdir())
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
        if used:
            raise UsageError(f"cannot write {path}: it is not empty; give another folder")

    def write(self, entry: Entry) -> None:
        """Write the file of an entry.

        Raises:
            UsageError: it cannot be written; no file is left then.
        """
        name = _file_name(len(self._sums))
        sink = SafetensorsSink(self._path / name)
        try:
            sink.write(entry)
            self._sums[name] = sink.finish()[CHECKSUM]
        finally:
            sink.discard()
        self.taken.clear()

    def finish(self) -> None:
        """Write the index.

        Raises:
            UsageError: it cannot be written.
        """
        index = PartFile(self._path / _INDEX)
        try:
            index.append(json.dumps({"version": _VERSION, "files": self._sums}).encode())
            index.close()
            index.rename()
        finally:
            index.discard()

    def discard(self) -> None:
        """Leave what is complete."""


def open_folder(path: Path) -> list[Source]:
    """The files of a folder, in the order they were written.

    Raises:
        UsageError: it is no dump, or a file is missing, changed or one too many.
    """
    names = sorted(file.name for file in path.glob("*.safetensors"))
    if not names and not (path / _INDEX).exists():
        raise UsageError(f"{path} is no dump of torchferry: it has no {_INDEX}")
    if names != [_file_name(number) for number in range(len(names))]:
        raise UsageError(f"{path} is no dump, or a file of it is missing: it has {names[:3]} ...")
    sources = [open_safetensors(path / name) for name in names]
    if not (path / _INDEX).exists():
        _log.warning("%s was not finished; it holds %d complete entries", path, len(names))
        return sources
    sums = {n: source.metadata.get(CHECKSUM) for n, source in zip(names, sources, strict=True)}
    try:
        index = json.loads(read_head(path / _INDEX, _LONGEST))
    except (RecursionError, ValueError) as error:
        raise UsageError(
            f"{path / _INDEX} is damaged: {error}; remove it to go without"
        ) from error
    if index != {"version": _VERSION, "files": sums}:
        raise UsageError(f"{path} does not hold the files that its {_INDEX} lists")
    return sources


def _file_name(number: int) -> str:
    return f"{number:06d}.safetensors"
