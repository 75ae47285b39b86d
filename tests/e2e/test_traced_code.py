"""What a model runs while it is traced, and not in PyTorch, must make no difference."""

from __future__ import annotations

import contextlib
import logging
import numbers

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import FerryError, Mismatch, UsageError
from ways import WAYS, build

LOG = logging.getLogger(__name__)


class Model(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.body(self, x)


def by_type(_, x):
    return x.clamp(-50, 50) if type(x) in (torch.Tensor, nn.Parameter) else x


def by_type_of_a_size(_, x):
    return x * 3 if type(x.shape[0]) is int and x.shape[0] > 60 else x * 2


def by_abstract_class(_, x):
    return x * 3 if isinstance(x.shape[0], numbers.Integral) and x.shape[0] > 60 else x * 2


def by_class_of_a_size(_, x):
    return x * 3 if isinstance(x.shape[0], int) and x.shape[0] > 60 else x * 2


def by_parameter(self, x):
    return x * 3 if type(self.weight) is nn.Parameter and x.shape[0] > 60 else x * 2


def by_truth(_, x):
    return x * 3 if (x.shape[0] > 1) is True and x.shape[0] > 60 else x * 2


def by_exception(_, x):
    try:
        if x.abs().max() > 50:
            x = x.clamp(-50, 50)
    except Exception:  # noqa: BLE001  (what people write)
        LOG.debug("not now")
    return x * 2


def by_suppression(_, x):
    with contextlib.suppress(RuntimeError):
        if x.abs().max() > 50:
            x = x.clamp(-50, 50)
    return x * 2


def by_conversion(_, x):
    try:
        most = float(x.max())
    except Exception:  # noqa: BLE001  (the same)
        most = 1.0
    return x * most


def by_compiler(_, x):
    return x if torch.compiler.is_compiling() else x.clamp(-50, 50)


CODE = [
    by_type, by_type_of_a_size, by_abstract_class, by_class_of_a_size, by_parameter, by_truth,
    by_exception, by_suppression, by_conversion, by_compiler,
]  # fmt: skip


@pytest.mark.parametrize("body", CODE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_what_only_pytorch_runs_is_not_lost(body, way):
    model = Model(body).eval()
    try:
        made = build(model, [(torch.rand(n, 3),) for n in (2, 4)], way)
    except FerryError:
        return
    for x in (torch.rand(70, 3), torch.rand(3, 3) * 1000 - 500):
        try:
            found = made(x)
        except (Mismatch, UsageError):
            continue
        torch.testing.assert_close(found, model(x))


class OfInteger(nn.Module):
    def forward(self, x, n: int):
        return x * 3 if type(n) is int and n > 60 else x * 2


@pytest.mark.parametrize("way", ["verified", "to_onnx"])
def test_integers_beyond_those_of_the_code_are_tried(way):
    model = OfInteger().eval()
    sets = [(torch.rand(2, 3), 5), (torch.rand(4, 3), 6)]
    if way == "to_onnx":
        shapes = {"x": {0: "rows"}, "n": torch.export.Dim.DYNAMIC}
        made = tf.to_onnx(model, sets[0], dynamic_shapes=shapes)
    else:
        made = tf.export(model, sets, budget=10, progress=False)
    with pytest.raises((Mismatch, UsageError)):
        made(torch.rand(2, 3), 70)


def pads_when_run(_, ids):
    return ids * 2 if torch.compiler.is_compiling() else ids.masked_fill(ids == 50256, 0) * 2


def pads_if_any(_, ids):
    with contextlib.suppress(Exception):
        if (ids == 50256).any():
            ids = ids.masked_fill(ids == 50256, 0)
    return ids * 2


def drops_a_number(_, x):
    return (torch.where(x == 7.25, 0.0, x) if type(x) is torch.Tensor else x) * 2


@pytest.mark.parametrize(
    ("body", "kind"), [(pads_when_run, int), (pads_if_any, int), (drops_a_number, float)]
)
@pytest.mark.parametrize("way", ["verified", "to_onnx", "capture"])
def test_numbers_that_code_compares_with_are_tried(body, kind, way):
    sets = [(torch.randint(1, 99, (n, 3)).to(torch.int64 if kind is int else torch.float32),)
            for n in (2, 4)]  # fmt: skip
    made = build(Model(body).eval(), sets, way)
    with pytest.raises((Mismatch, UsageError), match="runs other code than in PyTorch"):
        made(*sets[0])


def test_the_line_is_named():
    model = Model(by_compiler).eval()
    with pytest.raises(Mismatch, match=r"test_traced_code.py:\d+: return x if torch.compiler"):
        build(model, [(torch.rand(n, 3),) for n in (2, 4)], "unverified")(torch.rand(2, 3))


def says_something(_, x):
    if not torch.compiler.is_compiling():
        LOG.debug("called with %s", tuple(x.shape))
    return x * 2


def computes_the_same(_, x):
    if type(x) is torch.Tensor:
        return x * 2
    return x + x


@pytest.mark.parametrize("body", [says_something, computes_the_same], ids=lambda o: o.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_what_makes_no_difference_is_no_fault(body, way):
    model = Model(body).eval()
    made = build(model, [(torch.rand(n, 3),) for n in (2, 4)], way)
    x = torch.rand(70, 3) * 100
    torch.testing.assert_close(made(x), model(x))


class Shares(nn.Module):
    def __init__(self, scales):
        super().__init__()
        self.scales = scales

    def forward(self, x):
        h = x[0] * 0
        for t in range(x.shape[0]):
            h = torch.sin(h + x[t] * self.scales[0])
        if h.sum() > 0:
            h = h * self.scales[1]
        return h


@pytest.mark.parametrize("check", [True, False])
def test_lists_of_a_model_stay_the_same_objects(check):
    scales = [1.0, 2.0]
    model = Shares(scales).eval()
    tf.export(model, [(torch.rand(n, 3),) for n in (4, 6)], check=check, budget=5, progress=False)
    assert model.scales is scales


def test_a_capture_counts_the_dimensions_of_its_arguments():
    model = Model(lambda _, x: x * 2 if x.dim() == 2 else x * 3)
    made = build(model, [(torch.rand(n, 3),) for n in (2, 4)], "capture")
    for sizes in ((3,), (2, 3, 4)):
        with pytest.raises(UsageError, match=f"has {len(sizes)} dimensions"):
            made(torch.rand(sizes))
