"""Inventories for intersphinx, kept as text in the repository: the build asks no other site."""

from __future__ import annotations

import zlib
from pathlib import Path

__all__ = ["write_inventory"]


def write_inventory(text: Path, folder: Path) -> str:
    """Write what `sphinx.ext.intersphinx` reads, from a file of lines ``name role uri``.

    Args:
        text: the file; its name is the project's. Lines that begin with ``#`` are comments, and
            ``$`` in an address stands for the name.
        folder: where to write; it is made.

    Returns:
        The path of the inventory.
    """
    lines = [line.split() for line in text.read_text("utf-8").splitlines()]
    entries = [f"{name} {role} 1 {uri} -" for name, role, uri in filter(_is_entry, lines)]
    head = ("# Sphinx inventory version 2", f"# Project: {text.stem}", "# Version: ",
            "# The remainder of this file is compressed using zlib.")  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{text.stem}.inv"
    body = zlib.compress("".join(f"{entry}\n" for entry in entries).encode())
    path.write_bytes("".join(f"{line}\n" for line in head).encode() + body)
    return str(path)


def _is_entry(words: list[str]) -> bool:
    return bool(words) and not words[0].startswith("#")
