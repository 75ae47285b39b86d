import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.input_observer import as_observation
from torchferry.capturer.trial.agreement import compare_calls
from torchferry.errors import UsageError
from torchferry.observer import Observation


class Model(torch.nn.Module):
    def forward(self, x, y=None, scale=1.0):
        return (x if y is None else x + y) * scale


def observed():
    model, observer = Model(), torch.onnx.InputObserver()
    with observer(model):
        for n in (2, 5):
            model(torch.randn(n, 3), y=torch.randn(n, 3), scale=2.0)
    return model, observer


def test_an_input_observer_of_torch_stands_for_an_observation():
    model, observer = observed()
    seen = as_observation(model, observer)
    assert seen.dynamic_names == ("batch_size",)
    assert [call.kwargs["scale"] for call in seen.calls] == [2.0, 2.0]
    found = capture(model, observer)
    assert found.fixed == ()
    assert all(one.ok for one in compare_calls(found.program, seen))


def test_an_observation_is_taken_as_it_is():
    seen = Observation.from_inputs(Model(), [((torch.ones(2, 3),), {})])
    assert as_observation(Model(), seen) is seen


def test_what_is_refused():
    with pytest.raises(UsageError, match="saw no call"):
        as_observation(Model(), torch.onnx.InputObserver())
    with pytest.raises(UsageError, match="not a dict"):
        as_observation(Model(), {})
