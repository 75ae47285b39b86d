"""Which sizes a user calls legal: ``height=64..512:8, batch_size=1..4, width=64|128``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from torchferry.errors import UsageError

__all__ = ["Legal"]

_ENDLESS = 2**31  # a range without an end, and more than any size
_TOKEN = re.compile(r"\s*(?:(\.\.)|(\d+)|([=:|,])|([^\W\d][\w.]*))")
_FORM = (
    "write NAME=1..8, NAME=64..512:8 (every 8th), NAME=64.., or NAME=64|128, and commas between"
)


@dataclass(frozen=True)
class Legal:
    """The legal sizes of some dimensions and integers; all sizes of the others are legal.

    Attributes:
        ranges: by name, ascending ranges whose members are legal.

    >>> legal = Legal.of("height=64..512:8, batch_size=1..4, width=64|128")
    >>> legal.allows({"height": 72, "width": 64}), legal.allows({"height": 70})
    (True, False)
    >>> legal.text("height"), legal.near("height", 70, 2), legal.ends("batch_size")
    ('64..512:8', [72, 64], (1, 4))
    """

    ranges: Mapping[str, tuple[range, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: str | Mapping[str, int | str | Iterable[int]] | Legal | None) -> Legal:
        """Read what a user states.

        Args:
            sizes: a text as on the command line, or by name a size, such a text, a ``range`` or
                several sizes.

        Raises:
            UsageError: it is none of these; shows the place of the mistake.
        """
        if sizes is None:
            return cls()
        if isinstance(sizes, Legal):
            return sizes
        if isinstance(sizes, str):
            return cls(_Reader(sizes).read())
        if not isinstance(sizes, Mapping):
            raise UsageError(f"sizes is {sizes!r}: give a text or a dictionary; {_FORM}")
        return cls({str(name): _ranges(str(name), value) for name, value in sizes.items()})

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """Whether none of the sizes is illegal."""
        return all(
            any(size in span for span in self.ranges[name])
            for name, size in sizes.items()
            if name in self.ranges
        )

    def near(self, name: str, wanted: int, count: int) -> list[int]:
        """The legal sizes of a name that are nearest to one, the nearest first."""
        found: set[int] = set()
        for span in self.ranges.get(name, (range(_ENDLESS),)):
            at = min(max((wanted - span.start) // span.step, 0), len(span) - 1)
            found.update(span[max(at - count, 0) : at + count + 1])
        return sorted(found, key=lambda size: (abs(size - wanted), -size))[:count]

    def ends(self, name: str) -> tuple[int, int | None]:
        """The least and the largest legal size; ``None`` without a largest."""
        spans = self.ranges.get(name, (range(_ENDLESS),))
        largest = max(span[-1] for span in spans)
        endless = any(span.stop == _ENDLESS for span in spans)
        return min(span.start for span in spans), None if endless else largest

    def constant(self, name: str) -> int | None:
        """The only legal size, if there is one."""
        least, largest = self.ends(name)
        return least if least == largest else None

    def text(self, name: str) -> str:
        """The legal sizes of a name as a user writes them; empty if all are legal."""
        return "|".join(map(_text, self.ranges.get(name, ())))

    def check_names(self, known: Collection[str]) -> None:
        """Check that every name is known.

        Raises:
            UsageError: one is not; lists those that are.
        """
        for name in self.ranges:
            if name not in known:
                names = ", ".join(known) or "none: nothing varies between the input sets"
                raise UsageError(
                    f"sizes: no dimension or integer that varies is called {name!r}. "
                    f"Known: {names}"
                )

    def __str__(self) -> str:
        return ", ".join(f"{name}={self.text(name)}" for name in self.ranges)


def _text(span: range) -> str:
    if len(span) == 1:
        return str(span.start)
    end = "" if span.stop == _ENDLESS else str(span[-1])
    return f"{span.start}..{end}{f':{span.step}' if span.step > 1 else ''}"


def _ranges(name: str, value: int | str | Iterable[int]) -> tuple[range, ...]:
    if isinstance(value, str):
        return _Reader(f"{name}={value}").read()[name]
    if isinstance(value, range) and value and value.step > 0 and value.start >= 0:
        return (value,)
    sizes = [value] if isinstance(value, int) else value
    listed = sorted(set(sizes)) if isinstance(sizes, Iterable) else []
    if not listed or not all(type(size) is int and 0 <= size < _ENDLESS for size in listed):
        raise UsageError(
            f"sizes: {name} is {value!r}: give a size, several, an ascending range, or a text as "
            "'64..512:8'"
        )
    return tuple(range(size, size + 1) for size in listed)


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0  # the end of the token read last

    def read(self) -> dict[str, tuple[range, ...]]:
        found: dict[str, tuple[range, ...]] = {}
        while True:
            name = self._take("a name")
            if name in found:
                raise self._mistake(f"{name} stands here a second time", len(name))
            self._take("'='")
            spans = [self._span()]
            while self._next() == "|":
                self._take("'|'")
                spans.append(self._span())
            found[name] = tuple(spans)
            if self._next() == "":
                return found
            self._take("','")

    def _span(self) -> range:
        low = self._number()
        if self._next() != "..":
            return range(low, low + 1)
        self._take("'..'")
        high = self._number() if self._next().isdigit() else None
        if high is not None and high < low:
            raise self._mistake(f"the range ends below its begin, {low}", len(str(high)))
        step = 1
        if self._next() == ":":
            self._take("':'")
            step = self._number()
        if step == 0:
            raise self._mistake("a step is 1 or more", 1)
        return range(low, _ENDLESS if high is None else high + 1, step)

    def _number(self) -> int:
        text = self._take("a number")
        if int(text) >= _ENDLESS:
            raise self._mistake("a size is less than 2**31", len(text))
        return int(text)

    def _next(self) -> str:
        """The next token; empty at the end."""
        found = _TOKEN.match(self.text, self.at)
        return found[0].strip() if found else self.text[self.at :].strip()[:1]

    def _take(self, kind: str) -> str:
        token = self._next()
        fits = {"a number": token.isdigit(), "a name": token[:1].isidentifier()}
        if not fits.get(kind, kind == f"'{token}'"):
            rest = self.text[self.at :]
            self.at += len(rest) - len(rest.lstrip())
            raise self._mistake(f"{kind} is missing" + (f" before {token!r}" if token else ""))
        self.at = self.text.index(token, self.at) + len(token)
        return token

    def _mistake(self, what: str, back: int = 0) -> UsageError:
        place = " " * (self.at - back) + "^"
        return UsageError(f"sizes: {what}; {_FORM}\n  {self.text}\n  {place}")
