"""Copies that are made when they or their originals are first written to."""

import ctypes

import numpy as np
import pytest
import torch

from torchferry.values.clone import clone

is_lazy = torch._C._is_cow_tensor  # nothing else tells it without writing


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int8, torch.bool]
)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_a_lazy_copy_shares_the_memory_of_its_original(dtype, shape):
    x = torch.ones(shape).to(dtype)
    copied = clone({"x": [x, x]}, lazy=True)["x"]
    assert is_lazy(x)
    assert is_lazy(copied[0])
    assert copied[1] is copied[0] is not x
    assert torch.equal(copied[0], x)
    assert copied[0].stride() == x.stride()
    assert not is_lazy(clone(x.clone()))


def write_by_numpy(x):
    x.detach().numpy()[0] = 2


def write_by_dlpack(x):
    np.from_dlpack(x.detach())[0] = 2


def write_to_address(x):
    ctypes.c_float.from_address(x.data_ptr()).value = 2


CHANGES = {
    "in place": lambda x: x.detach()[0].fill_(2),
    "data": lambda x: x.data.mul_(2),
    "storage": lambda x: x.untyped_storage().fill_(0),
    "numpy": write_by_numpy,
    "dlpack": write_by_dlpack,
    "address": write_to_address,
    "shape": lambda x: setattr(x, "data", x.data[None]),
    "requires_grad": lambda x: x.requires_grad_(False),
    "attribute": lambda x: setattr(x, "scale", 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_written_to_one_of_the_two_is_not_seen_in_the_other(name):
    expected = torch.tensor([1.0, float("nan"), 0.0])
    for change_the_copy in (False, True):
        x = expected.clone().requires_grad_()
        copied = clone(x, lazy=True)
        assert is_lazy(x)
        assert is_lazy(copied)
        changed, other = (copied, x) if change_the_copy else (x, copied)
        CHANGES[name](changed)
        assert torch.equal(other.detach().view(torch.int32), expected.view(torch.int32))
        assert (other.shape, other.requires_grad, vars(other)) == ((3,), True, {})


def lent_to_numpy(x):
    kept = x.numpy()
    return kept.fill


def lent_by_dlpack(x):
    kept = np.from_dlpack(x)
    return kept.fill


def viewed(x):
    kept = x[1:]
    return kept.fill_


def of_numpy(x):
    array = np.zeros(3, np.float32)
    x.set_(torch.from_numpy(array))
    return array.fill


@pytest.mark.parametrize("lend", [lent_to_numpy, lent_by_dlpack, viewed, of_numpy])
def test_memory_that_others_may_write_to_is_copied_at_once(lend):
    x = torch.zeros(3)
    write = lend(x)
    copied = clone(x, lazy=True)
    assert not is_lazy(x)
    assert not is_lazy(copied)
    write(7)
    assert x[2] == 7
    assert copied.tolist() == [0, 0, 0]


def test_parts_and_parameters_are_copied_at_once():
    whole = torch.ones(4, 5)
    part, parameter = whole[:, 1:], torch.nn.Parameter(torch.ones(3))
    del whole
    copied = clone((part, parameter, torch.ones(1).expand(3)), lazy=True)
    assert not any(map(is_lazy, copied))
    assert type(copied[1]) is torch.nn.Parameter
