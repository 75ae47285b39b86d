from dataclasses import dataclass

import pytest
import torch
from torch.utils import _pytree as pytree

from torchferry.capturer.patching.registering import register_arguments, register_containers
from torchferry.errors import UsageError
from torchferry.observer import Observation


@dataclass
class Inner:
    x: torch.Tensor


@dataclass
class Outer:
    inner: Inner
    scale: float = 1.0


def test_classes_within_one_another_are_registered_once():
    value = {"a": [Outer(Inner(torch.ones(2)))]}
    names = register_containers(value)
    assert names == (f"{__name__}:Outer", f"{__name__}:Inner")
    leaves, spec = pytree.tree_flatten(value)
    assert len(leaves) == 2
    assert pytree.tree_unflatten(leaves, spec)["a"][0].scale == 1.0
    assert register_containers(value) == ()


def test_what_pytorch_knows_is_not_registered():
    assert register_containers(({"x": torch.ones(1)}, [1, (None, "text")])) == ()
    assert register_containers(torch.ones(1)) == ()


@dataclass
class Given:
    x: torch.Tensor


def test_what_was_inferred_while_an_argument_was_opaque_is_forgotten():
    class Takes(torch.nn.Module):
        def forward(self, given):
            return given.x

    seen = Observation.from_inputs(Takes(), [(Given(torch.ones(n)),) for n in (2, 3)])
    with pytest.raises(UsageError, match="PyTorch does not look into"):
        _ = seen.arguments
    assert register_arguments(seen) == (f"{__name__}:Given",)
    assert [argument.path for argument in seen.arguments] == [("given", "x")]
