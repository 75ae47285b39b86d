"""What a model's code keeps outside of its modules is not what a trace left there."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import CaptureError, FerryError
from ways import WAYS, build


class ByDefault(nn.Module):
    def forward(self, x, memo={}):  # noqa: B006  (what people write, and what is tried here)
        if "table" not in memo:
            memo["table"] = torch.arange(3.0)
        return x * memo["table"]


TABLES = {}


class ByGlobal(nn.Module):
    def forward(self, x):
        if "table" not in TABLES:
            TABLES["table"] = torch.arange(3.0)
        return x * TABLES["table"]


class ByClass(nn.Module):
    tables = {}  # noqa: RUF012  (the same)

    def forward(self, x):
        if x.dtype not in self.tables:
            self.tables[x.dtype] = torch.arange(3.0)
        return x * self.tables[x.dtype]


class ByAttributeOfClass(nn.Module):
    table = None

    def forward(self, x):
        if self.table is None:
            type(self).table = torch.arange(3.0)
        return x * self.table


@functools.lru_cache
def remembered(n):
    return torch.arange(float(n))


class ByCache(nn.Module):
    def forward(self, x):
        return x * remembered(3)


def by_closure():
    table = None

    def look_up():
        nonlocal table
        if table is None:
            table = torch.arange(3.0)
        return table

    class ByClosure(nn.Module):
        def forward(self, x):
            return x * look_up()

    return ByClosure()


@pytest.mark.parametrize(
    "make", [ByDefault, ByGlobal, ByClass, ByAttributeOfClass, ByCache, by_closure]
)
@pytest.mark.parametrize("way", ["verified", "unverified", "to_onnx", "onnx_dynamo"])
def test_what_a_trace_leaves_outside_of_a_model_is_taken_out(make, way):
    TABLES.clear()
    ByDefault.forward.__defaults__[0].clear()
    ByClass.tables.clear()
    ByAttributeOfClass.table = None
    remembered.cache_clear()
    model = make().eval()
    sets = [(torch.rand(2, 3),), (torch.rand(4, 3),)]
    made = build(model, sets, way)
    x = torch.rand(5, 3)
    assert type(model(x)) is torch.Tensor
    assert torch.equal(made(x), x * torch.arange(3.0))


@dataclass
class Meter:
    rows: int = 0
    last: object = None
    all: list = field(default_factory=list)


class ByObject(nn.Module):
    def __init__(self, meter):
        super().__init__()
        self.meters = {"first": meter}

    def forward(self, x):
        meter = self.meters["first"]
        meter.rows, meter.last = x.shape[0], x.mean()
        meter.all.append(x.shape[0])
        return x * 2


@pytest.mark.parametrize("meter", [Meter, lambda: SimpleNamespace(rows=0, last=None, all=[])])
@pytest.mark.parametrize("way", WAYS)
def test_objects_of_a_model_are_as_they_were(meter, way):
    model = ByObject(meter()).eval()
    try:
        build(model, [(torch.rand(2, 3),), (torch.rand(4, 3),)], way)
    except FerryError:
        assert way == "verified"  # what an append does to a list may be read
    kept = model.meters["first"]
    if way != "verified":  # which runs recorded calls on the model itself
        assert (kept.rows, kept.last, kept.all) == (0, None, [])
    assert type(kept.rows) is int
    assert kept.last is None or kept.last.isfinite()


class AppendsInABranch(nn.Module):
    def forward(self, x):
        found = []
        if x.sum() > 0:
            found.append(x)
        return found


def test_a_refused_trace_leaves_no_marks_on_tensors_and_prints_nothing(capfd):
    x = torch.rand(2, 3)
    with pytest.raises(CaptureError):
        tf.to_onnx(AppendsInABranch(), (x,), dynamic_shapes={"x": {0: "n"}})
    assert vars(x) == {}
    assert "def forward" not in "".join(capfd.readouterr())
