"""Conditions on sizes that make a difference only together are one condition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import UsageError
from ways import build


class Model(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


class OfThree(Model):
    def forward(self, a, b, c):
        return self.body(a, b, c)


def images(*shape):
    torch.manual_seed(sum(shape))
    return (torch.randn(*shape, 5),)


def tables(*rows):
    torch.manual_seed(sum(rows))
    return tuple(torch.randn(n, 3) for n in rows)


def of_flags(a, b, c):
    flags = [one.shape[0] == 1 for one in (a, b, c)]
    out = a.mean(0) + b.mean(0) + c.mean(0)
    return out.abs() if all(flags) else out


def of_lengths(a, b, c):
    fewest = sorted(int(len(one) < 2) for one in (a, b, c))[0]
    return (a.sum(0) + b.sum(0) + c.sum(0)) * (1 if fewest == 0 else 5)


def through_a_view(x):
    y = x + 0
    z = y.permute(3, 0, 1, 2).contiguous()  # y itself where all three are 1
    z.mul_(2)
    return y, z


THREE = {
    "a count": (lambda x: x.clamp(max=0.1) if x.shape.count(1) == 3 else x * 2, images),
    "arguments": (of_flags, tables),
    "0 or 1": (of_lengths, tables),
    "a view": (through_a_view, images),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", THREE)
def test_three_sizes_that_must_not_all_be_one(name, check, tmp_path):
    body, make = THREE[name]
    model = (OfThree if make is tables else Model)(body).eval()
    made = tf.export(model, [make(2, 3, 4), make(3, 4, 5)], check=check, progress=False)
    made.save(tmp_path / "out.onnx")
    for program in (made, tf.load(tmp_path / "out.onnx")):
        for sizes in ((1, 3, 4), (1, 1, 4), (2, 1, 1), (1, 2, 1), (7, 5, 2)):
            torch.testing.assert_close(program(*make(*sizes)), model(*make(*sizes)))
        with pytest.raises(UsageError, match=r"(!= 1|>= 2) or .*(!= 1|>= 2) or"):
            program(*make(1, 1, 1))


@pytest.mark.parametrize("way", ["verified", "capture", "to_onnx"])
def test_two_sizes_that_must_not_both_be_one(way):
    model = Model(lambda x: x * 3 if x.shape.count(1) == 2 else x * 2).eval()
    sets = [(torch.randn(n, n + 2),) for n in (2, 3)]
    if way == "to_onnx":
        made = tf.to_onnx(model, sets[0], dynamic_shapes=({0: "rows", 1: "columns"},))
    else:
        made = build(model, sets, way)
    for shape in ((2, 1), (5, 4)):
        torch.testing.assert_close(made(torch.ones(shape)), model(torch.ones(shape)))
    with pytest.raises(UsageError):
        made(torch.ones(1, 1))
