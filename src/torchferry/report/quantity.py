"""Amounts of things and of bytes, for people."""

from __future__ import annotations

__all__ = ["bytes_text", "counted", "packed_text", "shortened"]


def counted(number: int, noun: str) -> str:
    """A number and what it counts.

    >>> counted(1, "node"), counted(403, "node"), counted(13_022_592, "parameter")
    ('1 node', '403 nodes', '13.0 M parameters')
    """
    shown = str(number) if number < 100_000 else f"{number / 1e6:.1f} M"
    return f"{shown} {noun}{'s' * (number != 1)}"


def shortened(text: str, most: int = 120) -> str:
    """A text that has no more than a number of characters, cut at its end.

    >>> shortened("a line of code that goes on", 12)
    'a line of c…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def bytes_text(count: int) -> str:
    """A number of bytes.

    >>> bytes_text(512), bytes_text(9072), bytes_text(52_219_904), bytes_text(8 * 2**30)
    ('512 B', '8.9 KiB', '49.8 MiB', '8.0 GiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def packed_text(count: int, kind: str, size: int, plain: int) -> str:
    """What weights take in few bits, and what they would take as floats.

    >>> packed_text(12, "int8", 3_250_586, 13_002_342)
    '12 weights kept in int8: 3.1 MiB instead of 12.4 MiB'
    """
    return f"{counted(count, 'weight')} kept in {kind}: {bytes_text(size)} instead of " + (
        bytes_text(plain)
    )
