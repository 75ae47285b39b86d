"""Models that keep something from call to call, and calls of them."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["MODELS", "calls"]


def calls(*shape, axis=0, sizes=(3, 5)):
    """Sets of one input whose size on an axis varies."""
    return [(torch.rand(*shape[:axis], size, *shape[axis + 1 :]),) for size in sizes]


class RingBuffer(nn.Module):
    """Written by index, with a counter in a tensor."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(4, 3))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.ring[self.at % 4] = x.mean(0)
        self.at += 1
        return x + self.ring.sum(0)


class RingByInteger(nn.Module):
    """The same with a counter of Python's, in a column."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(3, 4), persistent=False)
        self.at = 0

    def forward(self, x):
        self.ring[:, self.at] = x.mean(0)
        self.at = (self.at + 1) % 4
        return x + self.ring.sum(1)


class Recurrent(nn.Module):
    """A hidden state in a plain attribute."""

    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.rnn = kind(3, 5, batch_first=True)
        zeros = torch.zeros(1, 2, 5)
        self.h = zeros if kind is nn.GRU else (zeros, zeros)

    def forward(self, x):
        y, self.h = self.rnn(x, self.h)
        return y


class Tail(nn.Module):
    """A streaming convolution."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv = nn.Conv1d(2, channels, 3)
        self.register_buffer("tail", torch.zeros(1, 2, 2))

    def forward(self, x):
        y = torch.cat([self.tail, x], -1)
        self.tail = y[..., -2:]
        return self.conv(y)


class TailInPlace(Tail):
    """The same, written in place."""

    def forward(self, x):
        y = torch.cat([self.tail, x], -1)
        self.tail.copy_(y[..., -2:])
        return self.conv(y)


class Grows(nn.Module):
    """A cache that gets longer."""

    def __init__(self, length=1):
        super().__init__()
        self.keys = torch.zeros(2, length, 4)

    def forward(self, x):
        self.keys = torch.cat([self.keys, x], 1)
        return x @ self.keys.transpose(1, 2)


class Shared(nn.Module):
    """One tensor under three names."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", self.a)
        self.inner = nn.Module()
        self.inner.c = [self.a]

    def forward(self, x):
        self.a += x.sum(0)
        self.b *= 0.5
        return x + self.inner.c[0]


class Kinds(nn.Module):
    """Buffers that hold no floats, and one of complex numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("count", torch.zeros(3, dtype=torch.int32))
        self.register_buffer("byte", torch.zeros(1, dtype=torch.uint8))
        self.register_buffer("turn", torch.ones(3, dtype=torch.complex64))

    def forward(self, x):
        self.seen |= (x > 0.5).any(0)
        self.count += (x > 0.5).sum(0).int()
        self.byte += 1
        self.turn = self.turn * torch.exp(1j * x.mean(0))
        return torch.where(self.seen, x, -x) * self.count + self.byte + self.turn.real


class Branches(nn.Module):
    """The first call does something else."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.ones((), dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        mean = x.mean(0)
        self.mean = torch.where(self.first, mean, 0.9 * self.mean + 0.1 * mean)
        self.first.fill_(False)
        return x - self.mean


class Counts(nn.Module):
    """An integer of the class, which the module has from the first call on."""

    step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


class Nested(nn.Module):
    """Lists and dictionaries; an argument is called ``state``."""

    def __init__(self):
        super().__init__()
        self.table = {"h": torch.zeros(3), "n": 0}
        self.items = [torch.zeros(3), torch.ones(3)]
        self.shown = None

    def forward(self, x, state=None, *, scale: float = 1.0):
        self.table["h"] = self.table["h"] + x.sum(0) * scale
        self.table["n"] += 1
        self.items[0] = self.items[0] * 0.5 + self.table["h"]
        self.items[1].add_(1)
        self.shown = x * 2  # nobody reads it
        return {"y": x + self.items[0] + self.items[1] * self.table["n"], "h": self.items[0]}


class Box:
    """A cache of their own."""

    def __init__(self):
        self.sum, self.count = torch.zeros(3), 0

    def update(self, x):
        self.sum.add_(x.sum(0))
        self.count += 1
        return self.sum * self.count


class Boxes(nn.Module):
    """One object in two places, and a name that caches have."""

    def __init__(self):
        super().__init__()
        self.box = Box()
        self.inner = nn.Module()
        self.inner.boxes = [self.box]
        self.key_cache = torch.zeros(3)

    def forward(self, x):
        self.key_cache = self.key_cache + x.mean(0)
        return x + self.inner.boxes[0].update(x) + self.key_cache


def _training(norm, *shape):
    model = nn.Sequential(norm)
    return model.train(), calls(3, *shape)


MODELS = {
    "running statistics": lambda: _training(nn.BatchNorm1d(4), 4),
    "running statistics of images": lambda: _training(nn.BatchNorm2d(3), 3, 4, 4),
    "statistics of instances": lambda: _training(
        nn.InstanceNorm1d(4, track_running_stats=True), 4, 6
    ),
    "ring buffer": lambda: (RingBuffer(), calls(3, 3)),
    "ring buffer by an integer": lambda: (RingByInteger(), calls(3, 3)),
    "GRU": lambda: (Recurrent(), calls(2, 3, 3, axis=1)),
    "LSTM": lambda: (Recurrent(nn.LSTM), calls(2, 3, 3, axis=1)),
    "tail": lambda: (Tail(), calls(1, 2, 5, axis=2)),
    "tail in place": lambda: (TailInPlace(), calls(1, 2, 5, axis=2)),
    "growing": lambda: (Grows(), calls(2, 3, 4, axis=1)),
    "growing from nothing": lambda: (Grows(0), calls(2, 3, 4, axis=1)),
    "two of one class": lambda: (
        nn.Sequential(Tail(2), Tail()),
        calls(1, 2, 5, axis=2),
    ),
    "shared": lambda: (Shared(), calls(3, 3)),
    "kinds": lambda: (Kinds(), calls(3, 3)),
    "branches": lambda: (Branches(), calls(3, 3)),
    "counts": lambda: (Counts(), calls(3, 3)),
    "boxes": lambda: (Boxes(), calls(3, 3)),
    "nested": lambda: (Nested(), calls(3, 3)),
}
"""Name → a function that makes the model and two sets of inputs."""
