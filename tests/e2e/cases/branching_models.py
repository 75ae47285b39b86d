"""Models whose code goes other ways for other sizes, integers and constants.

Each: ``(body, sets, later)``: forward, two or more sets of arguments to export
with, and sets of sizes and values that were not seen.
"""

from __future__ import annotations

from typing import Any

import torch


def ones(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).float() / 7


def strict(n: torch.Tensor) -> int:
    """Only the strict strategy takes a number that is read and not used."""
    return int(n.max())


def _fill(x: torch.Tensor, n: int) -> torch.Tensor:
    out = x * 1
    for _ in range(n):
        out = out * 2
    return out


def _window(x: torch.Tensor) -> torch.Tensor:
    rest = x.shape[1] % 4
    return torch.nn.functional.pad(x, (0, 4 - rest)) if rest > 0 else x


def _rows(*sizes: int, width: int = 3) -> list[tuple[Any, ...]]:
    return [(ones(n, width),) for n in sizes]


def _wide(*sizes: int) -> list[tuple[Any, ...]]:
    return [(ones(2 + i, n),) for i, n in enumerate(sizes)]


SIZES: dict[str, tuple[Any, Any, Any]] = {
    "larger": (lambda self, x: x * 2 if x.shape[0] > 5 else x - 1, _rows(6, 9), _rows(5, 1, 7, 0)),
    "smaller": (
        lambda self, x: x * 2 if x.shape[0] < 5 else x - 1,
        _rows(2, 4),
        _rows(5, 1, 9, 0),
    ),
    "even": (
        lambda self, x: x.sum(-1) if x.shape[1] % 2 == 0 else x.mean(-1),
        _wide(4, 8),
        _wide(5, 1, 2),
    ),
    "equal": (
        lambda self, x: x * 2 if x.shape[0] == x.shape[1] else x - 1,
        [(ones(2, 3),), (ones(4, 7),)],
        [(ones(3, 3),), (ones(1, 1),), (ones(5, 3),)],
    ),
    "one": (lambda self, x: x * 2 if x.shape[0] == 1 else x - 1, _rows(2, 5), _rows(1, 3, 0)),
    "not one": (lambda self, x: x * 2 if x.shape[0] != 1 else x - 1, _rows(2, 5), _rows(1, 3, 0)),
    "zero": (
        lambda self, x: x.sum() * 2 if x.shape[0] == 0 else x.sum() - 1,
        _rows(2, 5),
        _rows(0, 1, 3),
    ),
    "truth": (
        lambda self, x: x.sum() - 1 if x.shape[0] else x.sum() * 2 + 5,
        _rows(2, 5),
        _rows(0, 1, 3),
    ),
    "elements": (
        lambda self, x: x.sum() - 1 if x.numel() > 14 else x.sum() * 2,
        _rows(5, 9),
        _rows(1, 4, 0),
    ),
    "product": (
        lambda self, x: x - 1 if x.shape[0] * x.shape[1] > 20 else x * 2,
        [(ones(5, 6),), (ones(7, 4),)],
        [(ones(1, 2),), (ones(3, 7),), (ones(9, 2),)],
    ),
    "division": (
        lambda self, x: x - 1 if x.shape[0] // 3 == 2 else x * 2,
        _rows(6, 8),
        _rows(5, 9, 1, 7),
    ),
    "a float": (
        lambda self, x: x - 1 if x.shape[0] / 4 > 1.5 else x * 2,
        _rows(7, 9),
        _rows(6, 5, 1),
    ),
    "rounded": (
        lambda self, x: x - 1 if round(x.shape[0] / 3) == 2 else x * 2,
        _rows(5, 7),
        _rows(1, 9, 4),
    ),
    "root": (
        lambda self, x: x - 1 if x.shape[0] * x.shape[0] > 30 else x * 2,
        _rows(6, 7),
        _rows(5, 1, 9),
    ),
    "maximum": (
        lambda self, x: x - 1 if max(x.shape[0], 3) == 3 else x * 2,
        _rows(2, 3),
        _rows(4, 1, 9),
    ),
    "minimum": (lambda self, x: x - 1 if min(x.shape) > 2 else x * 2, _rows(3, 5), _rows(2, 1, 9)),
    "among": (
        lambda self, x: x - 1 if x.shape[0] in (4, 6) else x * 2,
        _rows(4, 6),
        _rows(5, 1, 9),
    ),
    "and": (
        lambda self, x: x - 1 if x.shape[0] > 2 and x.shape[1] > 3 else x * 2,
        [(ones(3, 5),), (ones(4, 7),)],
        [(ones(2, 5),), (ones(3, 3),), (ones(1, 1),)],
    ),
    "or": (
        lambda self, x: x - 1 if x.shape[0] > 6 or x.shape[1] > 6 else x * 2,
        [(ones(3, 5),), (ones(4, 6),)],
        [(ones(7, 5),), (ones(3, 7),), (ones(1, 1),)],
    ),
    "chained": (
        lambda self, x: x - 1 if 2 < x.shape[0] <= 6 else x * 2,
        _rows(3, 6),
        _rows(2, 7, 1),
    ),
    "padding": (lambda self, x: _window(x), _wide(5, 7), _wide(6, 8, 1, 4)),
    "no padding": (lambda self, x: _window(x), _wide(4, 8), _wide(12, 5, 1)),
    "a slice": (
        lambda self, x: x[:, :8] if x.shape[1] > 8 else x * 2,
        _wide(9, 12),
        _wide(8, 1, 10),
    ),
    "a sum of two": (
        lambda self, x, y: x.sum() + y.sum() if x.shape[0] + y.shape[0] > 7 else x.sum(),
        [(ones(4, 2), ones(5)), (ones(6, 2), ones(3))],
        [(ones(1, 2), ones(2)), (ones(9, 2), ones(1))],
    ),
    "an order of two": (
        lambda self, x, y: x.sum() + y.sum() if x.shape[0] > y.shape[0] else x.sum(),
        [(ones(6, 2), ones(5)), (ones(4, 2), ones(3))],
        [(ones(1, 2), ones(2)), (ones(9, 2), ones(1))],
    ),
    "strict, even": (
        lambda self, x, n: (strict(n), x.sum(-1) if x.shape[1] % 2 == 0 else x.mean(-1))[1],
        [(ones(2, 4), torch.ones(2).long()), (ones(3, 8), torch.ones(3).long())],
        [(ones(2, 5), torch.ones(2).long()), (ones(1, 2), torch.ones(1).long())],
    ),
    "strict, one": (
        lambda self, x, n: (strict(n), x * 2 if x.shape[0] == 1 else x - 1)[1],
        [(ones(2, 4), torch.ones(2).long()), (ones(3, 8), torch.ones(3).long())],
        [(ones(1, 4), torch.ones(1).long()), (ones(4, 1), torch.ones(4).long())],
    ),
    "twice and one more": (
        lambda self, x, y: x.sum() + y.sum() if y.shape[0] > 4 else x.sum() - y.sum(),
        [(ones(2 * n, 3), ones(n + 1)) for n in (4, 6, 5)],
        [(ones(2 * n, 3), ones(n + 1)) for n in (3, 1, 9)],
    ),
    "a rest of two": (
        lambda self, x, y: x - 1 if (x.shape[0] - y.shape[0]) % 3 == 0 else x * 2,
        [(ones(7, 2), ones(4)), (ones(9, 2), ones(3))],
        [(ones(5, 2), ones(4)), (ones(4, 2), ones(1))],
    ),
}

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "an integer, larger": (
        lambda self, x, n: x * 2 if n > 2 else x - 1,
        [(ones(2, 4), 1), (ones(3, 4), 2)],
        [(ones(1, 4), 5), (ones(5, 4), 0), (ones(5, 4), -3)],
    ),
    "an integer, negative": (
        lambda self, x, n: x * 2 if n < 0 else x - 1,
        [(ones(2, 4), 1), (ones(3, 4), 2)],
        [(ones(1, 4), -1), (ones(5, 4), 7)],
    ),
    "an integer, zero": (
        lambda self, x, n: x * 2 if n else x - 1,
        [(ones(2, 4), 1), (ones(3, 4), 2)],
        [(ones(1, 4), 0), (ones(5, 4), 7)],
    ),
    "an integer, odd": (
        lambda self, x, n: x * 2 if n % 2 else x - 1,
        [(ones(2, 4), 3), (ones(3, 4), 5)],
        [(ones(1, 4), 4), (ones(5, 4), 7)],
    ),
    "an integer and a size": (
        lambda self, x, n: x * 2 if n > x.shape[0] else x - 1,
        [(ones(2, 4), 3), (ones(3, 4), 5)],
        [(ones(1, 4), 0), (ones(5, 4), 5), (ones(5, 4), 9)],
    ),
    "an integer counts": (
        lambda self, x, n: _fill(x, n),
        [(ones(2, 4), 2), (ones(3, 4), 3)],
        [(ones(1, 4), 5), (ones(4, 4), 2)],
    ),
    "an integer as a size": (
        lambda self, x, n: x + x.new_ones(n, 1).sum(),
        [(ones(2, 4), 2), (ones(3, 4), 3)],
        [(ones(1, 4), 5), (ones(4, 4), 0), (ones(4, 4), 1)],
    ),
    "an integer picks": (
        lambda self, x, n: x[:, n],
        [(ones(2, 4), 1), (ones(3, 4), 2)],
        [(ones(1, 4), 3), (ones(4, 4), 0)],
    ),
    "an integer scales": (
        lambda self, x, n: x * n,
        [(ones(2, 4), 2), (ones(3, 4), 3)],
        [(ones(1, 4), 0), (ones(4, 4), -7), (ones(4, 4), 1)],
    ),
    "an integer as text": (
        lambda self, x, n: x * {"2": 1.0, "3": 5.0}.get(str(n), 9.0),
        [(ones(2, 4), 2), (ones(3, 4), 3)],
        [(ones(1, 4), 4), (ones(5, 4), 2)],
    ),
    "an integer as a key": (
        lambda self, x, n: x * {2: 1.0, 3: 5.0}.get(n, 9.0),
        [(ones(2, 4), 2), (ones(3, 4), 3)],
        [(ones(1, 4), 4), (ones(5, 4), 2)],
    ),
    "integers added": (
        lambda self, x, n, m: x * 2 if n + m > 6 else x - 1,
        [(ones(2, 4), 2, 3), (ones(3, 4), 4, 1)],
        [(ones(1, 4), 6, 1), (ones(5, 4), 0, 0)],
    ),
    "a constant": (
        lambda self, x, s: x * s,
        [(ones(2, 4), 2), (ones(3, 4), 2)],
        [(ones(1, 4), 3), (ones(1, 4), 2.0), (ones(1, 4), 2)],
    ),
    "a flag": (
        lambda self, x, flag: x * 2 if flag else x - 1,
        [(ones(2, 4), True), (ones(3, 4), True)],
        [(ones(1, 4), False), (ones(1, 4), True), (ones(1, 4), 1)],
    ),
    "a word": (
        lambda self, x, mode: x * 2 if mode == "twice" else x - 1,
        [(ones(2, 4), "twice"), (ones(3, 4), "twice")],
        [(ones(1, 4), "less"), (ones(1, 4), "twice")],
    ),
    "none": (
        lambda self, x, y=None: x if y is None else x + y,
        [(ones(2, 4),), (ones(3, 4),)],
        [(ones(1, 4), ones(1, 4)), (ones(1, 4), None)],
    ),
    "a default": (
        lambda self, x, s=2: x * (7 if s is None else s),
        [(ones(2, 4),), (ones(3, 4),)],
        [(ones(1, 4), None), (ones(1, 4), 3), (ones(1, 4), 2)],
    ),
    "an order of entries": (
        lambda self, d: sum((i + 1) * t for i, t in enumerate(d.values())),
        [({"a": ones(n, 2), "b": ones(n, 2)},) for n in (2, 3)],
        [({"b": ones(4, 2), "a": -ones(4, 2)},), ({"a": ones(1, 2), "b": -ones(1, 2)},)],
    ),
    "a list's length": (
        lambda self, xs: sum(xs) * len(xs),
        [([ones(n, 2), ones(n, 2)],) for n in (2, 3)],
        [([ones(4, 2)] * 3,), ([ones(4, 2)],), ([ones(1, 2), ones(1, 2)],)],
    ),
    "a list or a tuple": (
        lambda self, xs: xs[0] * 2 if isinstance(xs, tuple) else xs[0] - 1,
        [([ones(2, 4)],), ([ones(3, 4)],)],
        [((ones(1, 4),),), ([ones(1, 4)],), ([ones(1, 4), None],)],
    ),
    "an empty list": (
        lambda self, x, more=None: x * 2 if more is None else x - 1,
        [(ones(2, 4), None), (ones(3, 4), None)],
        [(ones(1, 4), []), (ones(1, 4), {}), (ones(1, 4),)],
    ),
    "a key without a tensor": (
        lambda self, d: d["x"] * 2 if "mask" in d else d["x"] - 1,
        [({"x": ones(2, 4)},), ({"x": ones(3, 4)},)],
        [({"x": ones(1, 4), "mask": None},), ({"x": ones(1, 4)},)],
    ),
    "two integers": (
        lambda self, x, a, b: x[a:b] if a < b else x[b:a] * 2,
        [(ones(6, 4), 1, 3), (ones(9, 4), 2, 5)],
        [(ones(7, 4), 3, 1), (ones(7, 4), 2, 2), (ones(7, 4), 0, 4)],
    ),
    "the type of a size": (
        lambda self, x: x * 2 if isinstance(x.shape[0], int) else x - 1,
        _rows(2, 5),
        _rows(1, 4),
    ),
    "a size as text": (
        lambda self, x: x * {"2": 1.0, "5": 5.0}.get(f"{x.shape[0]}", 9.0),
        _rows(2, 5),
        _rows(1, 4, 5),
    ),
    "another dtype": (
        lambda self, x: x * 2 if x.dtype == torch.float32 else x - 1,
        [(ones(2, 4),), (ones(3, 4),)],
        [(ones(1, 4).double(),), (ones(1, 4).long(),)],
    ),
    "another rank": (
        lambda self, x: x * 2 if x.ndim == 2 else x - 1,
        [(ones(2, 4),), (ones(3, 4),)],
        [(ones(1, 4, 4),), (ones(4),)],
    ),
}
