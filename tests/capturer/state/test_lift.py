import copy
import inspect

import pytest
import torch
from torch import nn

from stateful import MODELS, Counts, Nested, Recurrent, RingBuffer, Tail, calls
from torchferry.capturer import capture
from torchferry.capturer.state.lift import check_state, lift_state
from torchferry.errors import CaptureError, ConversionError, UsageError
from torchferry.exporter import to_onnx
from torchferry.observer import Observation
from torchferry.values.step import LIFTED


def lifted_of(model, sets):
    lifted = lift_state(model, Observation.from_inputs(model, sets))
    assert lifted is not None
    return lifted


@pytest.mark.parametrize("name", MODELS)
def test_a_lifted_model_is_a_function(name):
    model, sets = MODELS[name]()
    lifted, twin = lifted_of(model, sets), copy.deepcopy(model)
    state = lifted.initial
    with torch.no_grad():
        for args in [*sets, *sets[::-1]]:
            again = lifted.model(*args, **{LIFTED: state})
            step = lifted.model(*args, **{LIFTED: state})
            torch.testing.assert_close(again, step, rtol=0, atol=0)
            torch.testing.assert_close(step.outputs, twin(*args))
            state = step.state_next
    assert {*state} == {one.name for one in lifted.variables}
    assert [*dict(lifted.model.named_parameters())] == [*dict(model.named_parameters())]


def test_the_model_itself_runs_in_a_row():
    model, sets = MODELS["ring buffer"]()
    lifted = lifted_of(model, sets)
    step = lifted.run_in_a_row(model, [(args, {}) for args in sets], lifted.initial)
    assert step.state_next["at"] == 2
    assert len(step.outputs) == 2
    assert model.at == 0


def test_recorded_calls_get_the_state_they_had():
    model, sets = Counts(), calls(3, 3)
    seen = lifted_of(model, sets).seen
    assert [call.kwargs[LIFTED]["step"] for call in seen.calls] == [0, 1, 2, 3]
    (step,) = [a for a in seen.arguments if a.name == "state.step"]
    assert step.integer is not None


def test_calls_that_do_not_follow_each_other_begin_anew():
    class Fills(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("room", torch.zeros(6))
            self.used = 0

        def forward(self, x):
            self.room[self.used : self.used + len(x)] = x
            self.used += len(x)
            return self.room * 1

    seen = lifted_of(Fills(), [(torch.rand(4),), (torch.rand(5),)]).seen
    assert [call.kwargs[LIFTED]["used"] for call in seen.calls[:2]] == [0, 0]


def test_the_signature_has_one_more_name():
    model = Nested()
    lifted = lifted_of(model, calls(3, 3))
    assert list(inspect.signature(lifted.model.forward).parameters) == [
        "x", "state", "scale", LIFTED
    ]  # fmt: skip
    assert type(lifted.model).__name__ == "Nested"
    assert isinstance(copy.deepcopy(lifted.model), Nested)
    assert list(inspect.signature(model.forward).parameters) == ["x", "state", "scale"]


def test_inputs_of_a_function_get_a_state_too():
    def make(batch_size):
        return (torch.rand(batch_size, 3),)

    from torchferry.observer.given import to_observation

    model = RingBuffer()
    lifted = lift_state(model, to_observation(model, make))
    args, kwargs = lifted.seen.inputs_at({"batch_size": 7})
    assert {**kwargs, "x": 0}.keys() >= {"x", LIFTED}
    assert lifted.model(*args, **kwargs).outputs.shape == (7, 3)


def test_a_model_without_state_is_left_alone():
    seen = Observation.from_inputs(nn.ReLU(), calls(3, 3))
    assert lift_state(nn.ReLU(), seen) is None


def test_a_captured_model_becomes_inputs_and_outputs(tmp_path):
    model = Recurrent().eval()
    seen = Observation.from_inputs(model, calls(2, 3, 3, axis=1))
    captured = capture(model, seen, state="lift")
    assert captured.state["h"].shape == (1, 2, 5)
    assert not captured.changed
    with pytest.raises(UsageError, match=r"no \.pt2 file says: convert the capture itself"):
        captured.save(tmp_path / "x.pt2")
    program = to_onnx(captured)
    assert [value.name for value in program.model.graph.inputs] == ["x", "state.h"]
    assert [value.name for value in program.model.graph.outputs] == ["output", "state_next.h"]
    with torch.no_grad():
        for size in (1, 6, 2):
            x = torch.rand(2, size, 3)
            torch.testing.assert_close(program(x), model(x))


def test_without_lifting_the_message_says_that_it_exists():
    model = Tail().eval()
    captured = capture(model, Observation.from_inputs(model, calls(1, 2, 5, axis=2)))
    with pytest.raises(ConversionError, match=r'writes to buffer tail.* state="lift"'):
        to_onnx(captured)
    captured = capture(Counts(), Observation.from_inputs(Counts(), calls(3, 3)))
    assert 'state="lift"' in str(captured.changed[0])


def test_a_branch_on_state_is_rewritten():
    class Warms(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.calls += 1
            y = x
            if self.calls > 2:
                y = x * 2
            return y + 1

    model = Warms()
    seen = Observation.from_inputs(model, calls(3, 3))
    captured = capture(model, seen, state="lift", rewrite=True)
    assert "self.calls > 2" in captured.rewritten
    program = to_onnx(captured)
    x = torch.rand(1, 3)
    for _ in range(4):
        torch.testing.assert_close(program(x), model(x))


def test_an_integer_that_the_code_fixes():
    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.times = 1

        def forward(self, x):
            for _ in range(self.times):
                x = x * 2
            self.times += 1
            return x

    model = Doubles()
    seen = Observation.from_inputs(model, calls(3, 3))
    with pytest.raises(CaptureError, match=r"self\.times is state that cannot be lifted"):
        capture(model, seen, state="lift", rewrite=False)
    program = to_onnx(capture(model, seen, state="lift"))  # a loop on its own fixes nothing
    x = torch.rand(1, 3)
    for _ in range(4):
        torch.testing.assert_close(program(x), model(x))


def test_what_cannot_be_lifted_at_all():
    model, sets = Counts(), calls(3, 3)
    seen = Observation.from_inputs(model, sets)
    with pytest.raises(UsageError, match="choose one of refuse, lift"):
        check_state("keep")
    with pytest.raises(UsageError, match="choose one of refuse, lift"):
        capture(model, seen, state="keep")
    model.forward = model.forward
    with pytest.raises(UsageError, match="was replaced on the object"):
        lift_state(model, seen)


def test_an_argument_of_that_name():
    class Named(Counts):
        def forward(self, x, lifted_state=None):
            return super().forward(x)

    with pytest.raises(UsageError, match="has an argument lifted_state: rename it"):
        lift_state(Named(), Observation.from_inputs(Named(), calls(3, 3)))
