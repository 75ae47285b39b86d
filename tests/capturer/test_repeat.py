"""Layers that repeat others are left out of the trace, and never give another number."""

import pytest
import torch
from tests.support.identical_layers import CASES
from tests.support.same_graph import find_difference

import torchferry
from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.values.kinds import attempt

SIZES = (3, 5)


@pytest.fixture(scope="module", autouse=True)
def _operator():
    with torch.library._scoped_library("torchferry_tests", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
        yield


def observed(model):
    model.eval()
    return Observation.from_inputs(model, [((torch.randn(size, 4),), {}) for size in SIZES])


def traced(model, repeat):
    """The capture and the ONNX model, and why there is none."""
    try:
        found = capture(model, observed(model), settle=False, repeat=repeat, rewrite=False)
        return found, convert(found)
    except torchferry.errors.FerryError as error:
        return None, type(error)


@pytest.mark.parametrize("name", CASES)
def test_the_graph_and_the_numbers_are_those_of_a_whole_trace(name):
    make, repeated = CASES[name]
    torch.manual_seed(0)
    model = make()
    found, converted = traced(model, True)
    whole, other = traced(model, False)
    if whole is None:
        assert converted is other
        return
    assert not isinstance(converted, type)
    assert find_difference(converted, other) == ""
    assert str(found.repeated).startswith(f"{repeated} of"), found.repeated
    for size in (1, 7):
        x = torch.randn(size, 4)
        result, refused = attempt(found, x.clone())
        if size == 1 and isinstance(refused, AssertionError):  # another way through the code
            with pytest.raises(AssertionError, match="Guard failed"):
                whole(x.clone())
            continue
        assert refused is None
        with torch.no_grad():
            torch.testing.assert_close(result, model(x.clone()), equal_nan=True)
