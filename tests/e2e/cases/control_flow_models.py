"""Models as users write them, whose loops and branches stand in the way of torch.export.

Each is followed by input sets that are recorded, and by others of sizes and values not seen.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["MODELS"]

GENERATOR = torch.Generator().manual_seed(0)


def r(*shape):
    return torch.randn(*shape, generator=GENERATOR)


SEQUENCES = ([(r(2, 5, 4),), (r(3, 7, 4),)], [(r(1, 4, 4),), (r(4, 9, 4),), (r(2, 1, 4),)])
VALUES = (
    [(r(2, 5),), (r(3, 7),)],
    [(r(1, 4),), (r(4, 9),), (-r(2, 3).abs(),), (r(2, 3).abs(),), (r(2, 3) * 100,)],
)


class FillsATensor(nn.Module):
    """As RWKV writes its outputs."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        out = torch.zeros_like(x)
        for i in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, i], h], -1)))
            out[:, i] = h
        return out


class FillsBackwards(nn.Module):
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        out, again = torch.zeros_like(x), torch.zeros_like(x)
        for i in reversed(range(x.shape[1])):
            h = x[:, i] + 0.5 * h
            out[:, i] = h
        for i in range(x.shape[1] - 1, -1, -1):
            h = x[:, i] - 0.5 * h
            again[:, i] += h
        return out, again


class ReadsWhatItFills(nn.Module):
    """A prefix sum in place."""

    def forward(self, x):
        out = x.clone()
        for i in range(1, x.shape[1]):
            out[:, i] = out[:, i - 1] * 0.5 + x[:, i]
        out[:, 0] *= 2
        return out


class GrowsAList(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        outs = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t, :], h)
            outs.append(h.unsqueeze(1))
        return torch.cat(outs, dim=1), h


class GrowsTwoLists(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 4)
        outs, cells = [h], []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            outs.append(h)
            cells += [c]
        return torch.stack(outs, 1), torch.stack(cells, -1), cells[-1]


class TakesSlices(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(4, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        outs = []
        for step, scale in zip(x.unbind(1), x.cumsum(1).unbind(dim=1), strict=True):
            h = self.cell(step, h) * scale
            outs.append(h)
        return torch.stack(outs, dim=1)


class CarriesNothing(nn.Module):
    def forward(self, x):
        out = []
        for i in range(x.shape[1]):
            out.append(x[:, i].softmax(-1) * i)  # noqa: PERF401  (a loop is what is tested)
        return torch.stack(out, 1)


class ReadsNeighbours(nn.Module):
    def forward(self, x):
        h = x[:, 0]
        for i in range(1, x.shape[1]):
            h = 0.5 * h + x[:, i] - x[:, i - 1]
        return h


class InAnotherMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 4)

    def scan(self, x):
        h = x.new_zeros(x.shape[0], 4)
        out = torch.zeros_like(x)
        for i in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, i], h], -1)))
            out[:, i] = h
        return out

    def forward(self, x):
        return self.scan(x) + 1


def scan(x, cell):
    h = x.new_zeros(x.shape[0], 4)
    out = []
    for i in range(x.shape[1]):
        h = torch.tanh(cell(torch.cat([x[:, i], h], -1)))
        out.append(h)
    return torch.stack(out, 1)


class InAFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 4)

    def forward(self, x):
        return scan(x, self.cell) + 1


class InANestedFunction(nn.Module):
    def forward(self, x):
        def shrink(y):
            if y.abs().max() > 1:
                y = y / y.abs().max()
            return y

        return shrink(x) + shrink(x * 3)


class Decides(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # noqa: SIM108  (an if is what is tested)
            y = x * 2
        else:
            y = x - 1
        return y


class ReturnsInEachBranch(nn.Module):
    def forward(self, x):
        if x.sum() > 1:
            return x * 2
        elif x.sum() > 0:  # noqa: RET505  (an elif is what is tested)
            return x + 5
        else:
            return x - 1


class ReturnsEarly(nn.Module):
    def forward(self, x):
        if x.max() > 50:
            y = x / 100
            if y.min() < 0:
                return {"y": y.abs()}
            y = y + 1
        else:
            y = x
        return {"y": y * 2}


class AsksTwoThings(nn.Module):
    def forward(self, x):
        if x.sum() > 0 and (x.max() > 1 or not x.min() < -1):
            x = x * 2
        return x


class WritesInABranch(nn.Module):
    def forward(self, x):
        y = x.clone()
        z = y
        if x.sum() > 0:
            y[:, 0] = 7
            y += 1
            y[0].mul_(2)
        return y, z


class SetsANumber(nn.Module):
    def forward(self, x):
        scale = 1.0
        if x.max() > 1:
            scale = x.max()
        return x / scale


class Repeats(nn.Module):
    def forward(self, x):
        n = 0
        while x.abs().max() > 1:
            x = x / 2
            n = n + 1
        return x, n + x.sum()


class AsksForNumbers(nn.Module):
    def forward(self, x):
        if x.max().item() > 1:
            x = x / x.max()
        if int((x > 0).sum()) > 3 or bool(x.min() < -2):
            x = x + 1
        return x if float(x.mean()) < 0.25 else -x


class LeavesInSteps(nn.Module):
    def forward(self, x):
        if torch.any(x > 1.5):
            x = x.clamp(max=1.5)
        if not (x < 0).any():
            return x + 1
        return x


LOOPS = (
    FillsATensor, FillsBackwards, GrowsAList, GrowsTwoLists, TakesSlices, CarriesNothing,
    InAnotherMethod, InAFunction,
)  # fmt: skip
# onnxruntime's Scan takes no empty sequence: one element is refused there.
FROM_THE_SECOND = (ReadsWhatItFills, ReadsNeighbours)
BRANCHES = (
    InANestedFunction, Decides, ReturnsInEachBranch, ReturnsEarly, AsksTwoThings,
    WritesInABranch, SetsANumber, Repeats, LeavesInSteps, AsksForNumbers,
)  # fmt: skip
MODELS = (
    dict.fromkeys(LOOPS, SEQUENCES)
    | dict.fromkeys(FROM_THE_SECOND, (SEQUENCES[0], [(r(1, 4, 4),), (r(4, 9, 4),), (r(2, 2, 4),)]))
    | dict.fromkeys(BRANCHES, VALUES)
)
