"""The numbers that the user's code gives to PyTorch's functions."""

import torch
from transformers.activations import NewGELUActivation

from torchferry.capturer.constants import changed_number, record_numbers

LIMITS = (1e8, 1e12)


def run(function, *args):
    with record_numbers() as calls:
        function(*args)
    return calls


def bounded(x):
    return x.clamp(max=LIMITS[bool(x.shape[0] > 1)]) + x.shape[0]


def cut(x):
    return x[:, -(64, 640)[x.shape[0] > 1] :].mean(1)


def test_a_number_that_is_another_only_here():
    for function, line in ((bounded, "clamp"), (cut, "640")):
        usual = [run(function, torch.ones(n, 3)) for n in (2, 5)]
        assert line in changed_number(run(function, torch.ones(1, 3)), usual)
        assert changed_number(run(function, torch.ones(7, 3)), usual) == ""


def test_flags_and_the_code_of_packages_are_left_out():
    assert run(NewGELUActivation(), torch.ones(2, 3)) == []
    layer = run(torch.nn.LayerNorm(3, eps=1e-3), torch.ones(2, 3))  # chosen by who calls it
    assert (3, 1e-3) in [one.values for one in layer]
    call = run(lambda x: x.sum(0, keepdim=x.shape[0] > 1), torch.ones(1, 3))[-1]
    assert call.values == (0,)
    assert call.place[0] == __file__


def test_other_functions_prove_nothing():
    usual = [run(bounded, torch.ones(n, 3)) for n in (2, 5)]
    assert changed_number(run(cut, torch.ones(1, 3)), usual) == ""
