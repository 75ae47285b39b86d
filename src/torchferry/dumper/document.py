"""What every dump holds beside its tensors: the records of its entries, in one JSON text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchferry.dumper.record import Fetch
from torchferry.errors import UsageError

__all__ = ["CHECKSUM", "DOCUMENT", "Source", "properties", "read_records"]

DOCUMENT = "torchferry.dump"
"""The name of the text in the metadata of a file."""

CHECKSUM = "torchferry.dump.sha256"
"""The name of the SHA-256 of it."""

_VERSION = 2  # 2: other checksums of large buffers, shared containers


@dataclass(frozen=True)
class Source:
    """A file that may hold a dump.

    Attributes:
        path: what to call it in messages.
        metadata: names and texts of its metadata.
        fetch: reads a buffer of it.
    """

    path: str
    metadata: Mapping[str, str]
    fetch: Fetch


def properties(records: list[dict[str, Any]], *, whole: bool = False) -> dict[str, str]:
    """The metadata of a dump: names and texts.

    Args:
        records: one an entry, in order, with checksums.
        whole: whether the dump is one value without a key.
    """
    document = {"version": _VERSION, "whole": whole, "entries": records}
    text = json.dumps(document, separators=(",", ":"))
    return {DOCUMENT: text, CHECKSUM: hashlib.sha256(text.encode()).hexdigest()}


def read_records(source: Source) -> tuple[list[Any], bool]:
    """The records of a dump, unchecked but as they were written, and whether it is one value.

    Raises:
        UsageError: this is no dump, a damaged one, or of another version.
    """
    text = source.metadata.get(DOCUMENT)
    if text is None:
        raise UsageError(
            f"{source.path} is no dump of torchferry; write one with open_dump or steal_forward"
        )
    try:
        if hashlib.sha256(text.encode()).hexdigest() != source.metadata.get(CHECKSUM):
            raise UsageError(f"{source.path} is damaged: its description is not as it was written")
        document = json.loads(text)
        version = document["version"]
        if version != _VERSION:
            raise UsageError(f"{source.path} is a dump of version {version}, {_advice(version)}")
        entries, whole = document["entries"], document["whole"]
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(f"{source.path} is damaged: {reason}") from error
    if not isinstance(entries, list) or (whole is True and len(entries) != 1):
        raise UsageError(f"{source.path} is damaged: it has no list of entries")
    return entries, whole is True


def _advice(version: Any) -> str:
    if version in range(1, _VERSION):
        return (
            f"written by an earlier torchferry; this one reads version {_VERSION}: "
            "write the dump again"
        )
    return "written by a later torchferry; install that"
