"""Small models on which an exporter fails, each the seed of a whole kind.

A case returns ``(model, seen, later, notes)``:

* ``seen``: sets of arguments (tuples or dicts) that are observed before the export;
* ``later``: sets that are tried on the result afterwards, of sizes or values not seen;
* ``notes``: ``expect`` is ``equal`` (every set equals eager), ``refused`` (the export, its report
  or the call says no, and the text contains each of ``says``) or ``equal_or_refused`` (never
  another number without a word); ``options`` go to ``export``; ``atol``.

Each was met by people exporting real models.
"""

from __future__ import annotations

import copy
import dataclasses
import sys

import field_modules
import torch
import torch.nn.functional as F
from field_notes import make_notes as _notes
from field_notes import rand as _rand
from torch import nn


def condition_in_a_strict_capture():
    class Model(nn.Module):
        def forward(self, x, n):
            int(n.max())  # another strategy captures this model
            return x.sum(-1) if x.shape[-1] % 2 == 0 else x.mean(-1)

    def make(b, t):
        return torch.ones(b, t), torch.tensor([1] * b)

    return (
        Model(),
        [make(2, 16), make(3, 24)],
        [make(2, 9), make(1, 8)],
        _notes(
            "equal_or_refused",
            kind="a condition on sizes holds whichever strategy captured the model",
        ),
    )


def condition_kept_after_verifying():
    class Model(nn.Module):
        def forward(self, x):
            return x.sum(-1) if x.shape[-1] % 2 == 0 else x.mean(-1)

    return (
        Model(),
        [(_rand(2, 16),), (_rand(3, 24),)],
        [(torch.ones(1, 9),), (torch.ones(5, 8),)],
        _notes(
            "equal_or_refused",
            says=("% 2",),
            kind="verified where a named condition holds, refused elsewhere, after save "
            "and load too",
        ),
    )


def condition_on_an_integer():
    class Model(nn.Module):
        def forward(self, x, n):
            return x * 2 if n > 2 else x - 1

    return (
        Model(),
        [(_rand(2, 4), 1), (_rand(3, 4), 2)],
        [(torch.ones(1, 4), 5)],
        _notes(
            "equal_or_refused",
            kind="conditions on integer inputs, and on sizes that only an expression "
            "names, are checked",
        ),
    )


def integer_fixed_by_a_loop():
    class Model(nn.Module):
        def forward(self, x, n):
            for _ in range(n):
                x = x * 2
            return x

    return (
        Model(),
        [(_rand(2, 4), 2), (_rand(3, 4), 3)],
        [(torch.ones(1, 4), 5)],
        _notes(
            "equal_or_refused",
            kind="an input that nothing reads is never accepted with another value",
        ),
    )


def alias_across_a_rewritten_loop():
    class Model(nn.Module):
        def forward(self, x, y):
            total = y * 1
            kept = total
            for row in x:
                total += row
            return kept

    return (
        Model(),
        [(torch.ones(3, 2), torch.zeros(2)), (torch.ones(5, 2), torch.zeros(2))],
        [(torch.ones(4, 2), torch.zeros(2))],
        _notes(
            "equal_or_refused",
            options={"rewrite": True},
            kind="a rewritten statement keeps what other names see",
        ),
    )


def in_place_inside_a_rewritten_branch():
    class Model(nn.Module):
        def forward(self, x, y):
            z = x + 1
            if x.sum() > 0:
                z += y
            return z

    return (
        Model(),
        [(torch.ones(n, 4), torch.ones(n, 4)) for n in (3, 5)],
        [(-torch.ones(2, 4), torch.ones(2, 4))],
        _notes(options={"rewrite": True}, kind="augmented assignments in branches"),
    )


def half_inside_float():
    torch.manual_seed(1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            return F.linear(x.half(), self.linear.weight.half()).float()

    return (
        Model(),
        [(_rand(3, 64),), (_rand(5, 64),)],
        [(_rand(6, 64),)],
        _notes(
            atol=2e-3,
            kind="the tolerance is that of the narrowest arithmetic inside, autocast too",
        ),
    )


def size_one_axis_indexes():
    class Model(nn.Module):
        def forward(self, x, i, j):
            return x[i, j]

    def make(n, k):
        return torch.rand(6, 5), torch.arange(n)[:, None], torch.arange(k)[None]

    return (
        Model(),
        [make(2, 3), make(4, 2)],
        [make(1, 5), make(3, 1)],
        _notes(kind="broadcasting among index tensors, also where a size is 1"),
    )


def container_of_their_own():
    class Box:
        def __init__(self, t):
            self.t = t

    class Model(nn.Module):
        def forward(self, box):
            return box.t + 1

    return (
        Model(),
        [(Box(_rand(2, 3)),), (Box(_rand(4, 3)),)],
        [],
        _notes("refused", says=("Box", "register"), kind="unknown containers are named"),
    )


def local_dataclass_result():
    @dataclasses.dataclass
    class Out:
        y: torch.Tensor
        z: torch.Tensor

    class Model(nn.Module):
        def forward(self, x):
            return Out(x + 1, x * 2)

    return (
        Model(),
        [(_rand(2, 3),), (_rand(4, 3),)],
        [(_rand(1, 3),)],
        _notes(kind="classes that cannot be imported work in the process that has them"),
    )


def cases():
    """Name → function, in the order of the files."""
    own = sys.modules[__name__]
    return {
        name: function
        for module in (own, field_modules)
        for name, function in vars(module).items()
        if getattr(function, "__module__", "") == module.__name__
        and not name.startswith("_")
        and name not in ("cases", "call", "tensors")
    }


def call(target, given):
    given = copy.deepcopy(given)
    return target(**given) if isinstance(given, dict) else target(*given)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in tensors(getattr(value, f.name))]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []
