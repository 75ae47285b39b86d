"""Loops and branches that users write, several to a model; each with sizes and values not seen."""

from __future__ import annotations

import torch
from control_flow_models import SEQUENCES, VALUES, r
from torch import nn

__all__ = ["LOOPS", "STATES"]

LOOPS, STATES = {}, {}


def of(table, recorded, later):
    def add(cls):
        table[cls] = (recorded, later)
        return cls

    return add


FROM_THREE = [(r(1, 4, 4),), (r(4, 9, 4),), (r(2, 3, 4),)]
FROM_ONE = [*SEQUENCES[1], (r(1, 1, 4),)]


@of(LOOPS, SEQUENCES[0], FROM_ONE)
class ReadsItsList(nn.Module):
    """The last entry, by -1 and by number; one at the front; lengths, sums and slices."""

    def forward(self, x):
        y = [x[:, 0]]
        for t in range(1, x.shape[1]):
            y.append(0.3 * x[:, t] + 0.5 * y[-1])
        z = [torch.zeros_like(x[:, 0])]
        for t in range(1, x.shape[1]):
            z.append(x[:, t] - 0.5 * z[t - 1])
        back, h = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1] - 1, -1, -1):
            h = h * 0.5 + x[:, t]
            back.insert(0, h)
        entries = []
        for row in x.unbind(1):
            entries += [row.softmax(-1)]
        ends = entries[-1] - entries[0]
        return (
            torch.stack(y, 1) / len(y), torch.stack(z, 1), torch.stack(back, 1), sum(entries),
            torch.cat(entries[::-1], 1), ends,
        )  # fmt: skip


@of(LOOPS, SEQUENCES[0], FROM_THREE)
class ReadsTwoEntries(nn.Module):
    def forward(self, x):
        y = [x[:, 0], x[:, 1]]
        for t in range(2, x.shape[1]):
            y.append(0.3 * x[:, t] + 0.5 * y[-1] - 0.2 * y[-2])
        return torch.stack(y[1:], 1)


@of(LOOPS, SEQUENCES[0], FROM_ONE)
class BeginsWithNumbers(nn.Module):
    """States that are a number, or None, until the first step; names that are set in it."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x):
        s, total, best, prev, state = 0, 0.0, None, None, None
        out = []
        for t in range(x.shape[1]):
            s = s + x[:, t]
            total += (x[:, t] ** 2).mean()
            if best is None:  # noqa: SIM108  (an if is what is tested)
                best = x[:, t]
            else:
                best = torch.maximum(best, x[:, t])
            state = self.cell(x[:, t] if prev is None else x[:, t] - prev, state)
            out.append(state[0])
            prev = x[:, t]
        return s, total, best, torch.stack(out, 1), prev, x * t


@of(LOOPS, SEQUENCES[0], FROM_ONE)
class RunsOverManyThings(nn.Module):
    """zip, enumerate, steps, reversed, split, one loop within another, and continue."""

    def forward(self, x):
        s = torch.zeros(4)
        for a, b in zip(x.transpose(0, 1), x.unbind(1), strict=True):
            s = 0.5 * s + (a * b).sum(0)
        rows = []
        for i, row in enumerate(x):
            rows.append(row * i)
        third = torch.zeros_like(x[:, 0])
        for t in range(0, x.shape[1], 3):
            third = 0.5 * third + x[:, t]
        for t in reversed(range(x.shape[1])):
            if t == 0:
                continue
            third = third - x[:, t] * x[:, t - 1]
        means = []
        for part in x.split(3, 1):
            means.append(part.mean(1))  # noqa: PERF401  (a loop is what is tested)
        out = torch.zeros_like(x)
        for b in range(x.shape[0]):
            h = torch.zeros(4)
            for t in range(x.shape[1]):
                h = 0.5 * h + x[b, t]
                out[b, t] = h
        return s, torch.stack(rows), third, torch.stack(means, 1), out


@of(LOOPS, SEQUENCES[0], FROM_ONE)
class LoopsInBrackets(nn.Module):
    def forward(self, x):
        if any(bool((row > 2).any()) for row in x):
            x = x * 2
        if all(x[:, t].sum() > -1 for t in range(x.shape[1])):
            x = x + 1
        x = x / max(float(row.abs().max()) for row in x)
        y = torch.stack([x[:, t].softmax(-1) for t in range(x.shape[1])], 1)
        return y, sum(x[:, t] ** 2 for t in range(x.shape[1])), sum([row.mean(0) for row in x])


@of(LOOPS, *VALUES)
class AsksForValues(nn.Module):
    """Numbers that are read first and asked about later, selections, and returns."""

    def forward(self, x):
        m, n = float(x.mean()), (x > 0).sum().item()
        if m > 0.3:
            y = x - m
        elif m < -0.3:
            y = x + m
        elif n > 3:
            y = x * n
        else:
            y = x
        if len(x[x > 1]) > 1:
            y = y * 2
        chosen = x[x > 0.5]
        if chosen.numel() > 0:
            y = y - chosen.mean()
        flag = bool((x > 1).any())
        y = y + 1 if flag else y - 1
        if y.max() > 3:
            return y.clamp(max=3)
        return y * 2


@of(LOOPS, *VALUES)
class EndsWhenItIsNear(nn.Module):
    """while with an error that is a number at first, and break."""

    def forward(self, x):
        y, err, n = torch.ones_like(x), 1.0, 0
        while err > 1e-3 and n < 50:
            z = 0.5 * (y + x.abs() / y.clamp(min=1e-6))
            err = (z - y).abs().max().item()
            y = z
            n += 1
        for _ in range(10):
            x = x * 0.5
            if x.abs().max() < 0.1:
                break
        return y, x


@of(STATES, SEQUENCES[0], FROM_ONE)
class BuildsATable(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        n = x.shape[1]
        if self.table is None or self.table.shape[0] < n:
            self.table = torch.cos(torch.arange(n)[:, None] / torch.arange(1, 5))
        return x * self.table[:n]


@of(STATES, SEQUENCES[0], FROM_ONE)
class CollectsByHooks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)
        self.features = {}
        for name in ("first", "second"):
            getattr(self, name).register_forward_hook(self.keeps(name))

    def keeps(self, name):
        def keep(module, args, out):
            self.features[name] = out

        return keep

    def forward(self, x):
        self.second(self.first(x).relu())
        return dict(self.features)
