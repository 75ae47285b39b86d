"""Layers that repeat others are left out of the trace, and never give another number."""

import pytest
import torch
from tests.support import different_layers, stateful_layers, valued_layers
from tests.support.families import slow_among
from tests.support.identical_layers import CASES, Layer, Stack
from tests.support.same_graph import find_difference

import torchferry
from torchferry.capturer import capture, tracing
from torchferry.capturer.depth import repeat as repeat_module
from torchferry.capturer.depth.repeat import Repeated, find_layers
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.values.kinds import attempt

SIZES = (3, 5)
FILES = (different_layers, stateful_layers, valued_layers)  # enter their cases
# Ways through the code that another case takes too.
SLOW = [
    "sequential", "training mode with dropout of zero", "results in a global dictionary",
    "a generator of results", "its input is returned", "called in another order",
    "called on lines of their own", "sizes in results", "a tuple is unpacked",
    "parts of results", "shared weights", "identity of tensors", "a custom operator",
    "a view that is transposed", "einsum and keywords", "lists of tensors go in and out",
    "the last call is another", "one call more", "one call less", "an integer for a float",
    "another epsilon", "another activation", "another axis", "values in a list",
    "a slice by index", "the other of two tensors", "an argument is None", "another width",
    "a parameter without gradient", "another size goes in", "dropout in one layer",
    "another default dtype", "a global counter that nothing reads but the end",
    "the input of all in a global", "each reads what the last one left", "a hook on one",
    "a forward of its own", "a part is replaced", "attributes count", "an error is caught",
    "an error from outside is caught", "what the layer before is called",
    "a buffer is a number", "a buffer is a size", "a table of integers by layer",
    "a list of tensors", "torch functions are disabled", "storage of a tensor",
    "a shape that changes in place", "a size that depends on values", "printed shapes",
    "checks of sizes", "a branch on a size in one", "autocast in one layer",
    "a grad mode of its own",
]  # fmt: skip


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


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", slow_among(CASES, SLOW))
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
        # One row takes another way through the code.
        if size == 1 and isinstance(refused, torchferry.errors.UsageError):
            with pytest.raises(torchferry.errors.UsageError, match="Guard failed"):
                whole(x.clone())
            continue
        assert refused is None
        with torch.no_grad():
            torch.testing.assert_close(result, model(x.clone()), equal_nan=True)


def test_layers_are_members_of_lists_that_are_built_alike():
    model = torch.nn.Module()
    model.stack = Stack([Layer(0), Layer(1), Layer(2, 6)])
    model.relus = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())  # too small
    model.inner = torch.nn.ModuleList([Stack([Layer(0), Layer(1)]), Layer(0)])
    found = ["stack.layers.0", "stack.layers.1", "inner.0.layers.0", "inner.0.layers.1"]
    assert [*find_layers(model)] == found


class Keeps(Layer):
    """Uses what a call returned where nobody sees the call of torch."""

    def forward(self, x):
        y = self.inner(x)
        with torch._C.DisableTorchFunction():
            return y * 2


def test_a_stand_in_that_escapes_ends_it_and_is_no_failed_strategy():
    model = Stack([Keeps(index) for index in range(3)]).eval()
    found = capture(model, observed(model), settle=False)
    assert [attempt.error for attempt in found.attempts] == [None]
    assert str(found.repeated) == "0 of 3 layers repeated"
    assert "used where torch does not say for what" in dict(found.repeated.reasons)["layers.1"]
    x = torch.randn(6, 4)
    torch.testing.assert_close(found(x), model(x))


def test_an_error_of_the_model_is_the_error_of_a_whole_trace():
    class Fails(Layer):
        def forward(self, x):
            if self.index == 2:
                raise ValueError("the third layer is broken")
            return self.inner(x)

    model = Stack([Fails(index) for index in range(3)])
    seen = Observation.from_inputs(model, [((torch.randn(size, 4),), {}) for size in SIZES])
    with pytest.raises(torchferry.errors.CaptureError, match="the third layer is broken"):
        capture(model, seen, settle=False, patch=False, rewrite=False)


class Deep(Stack):
    """Many modules, so that a trace takes long, and an end that values decide."""

    def __init__(self, layers, end):
        super().__init__(layers)
        self.end = end

    def forward(self, x):
        flags = []
        for layer in self.layers:
            x, flag = layer(x)
            flags.append(flag)
        return self.end(x, flags)


class Flagged(Layer):
    def __init__(self, index):
        super().__init__(index)
        self.flag = torch.nn.Buffer(torch.tensor(1.0))

    def forward(self, x):
        return self.inner(x), self.flag


def deep(end):
    return Deep([Flagged(index) for index in range(24)], end).eval()


def test_a_large_model_is_traced_whole_once_before_it_is_refused(monkeypatch):
    counted = []
    trace = tracing._trace_once
    monkeypatch.setattr(tracing, "_trace_once", lambda *given: counted.append(given[-1].layers)
                        or trace(*given))  # fmt: skip
    model = deep(lambda x, flags: x * sorted(x.flatten().tolist())[0])
    with pytest.raises(torchferry.errors.CaptureError):
        capture(model, observed(model), settle=False)
    assert [bool(layers) for layers in counted][:2] == [True, False]
    assert len(counted) <= 3  # the last one meets rewritten code


def test_what_fails_only_as_layers_are_left_out_is_traced_whole(monkeypatch):
    trace = tracing._trace_once

    def fail(*given):
        outcome, written = trace(*given)
        if given[-1].used:
            outcome.program, outcome.error = None, ValueError("a data-dependent expression")
        return outcome, written

    monkeypatch.setattr(tracing, "_trace_once", fail)
    model = deep(lambda x, flags: x * 2 if flags[-1] > 0 else x - 1)
    found = capture(model, observed(model), settle=False, rewrite=False)
    assert found.attempts[0].error is not None
    x = torch.randn(7, 4)
    torch.testing.assert_close(found(x), model(x))


@pytest.mark.parametrize("off", ["option", "seam"])
def test_without_it_every_layer_is_traced(off, monkeypatch):
    if off == "seam":
        monkeypatch.setattr(repeat_module, "can_repeat", lambda: False)
    model = Stack([Layer(index) for index in range(3)]).eval()
    found = capture(model, observed(model), settle=False, repeat=off != "option")
    assert found.repeated == Repeated()


def test_modules_are_as_they_were():
    model = Stack([Layer(index) for index in range(3)]).eval()
    forward = Layer.forward
    capture(model, observed(model), settle=False)
    assert Layer.forward is forward
    assert "forward" not in vars(model)
    assert not any("forward" in vars(layer) for layer in model.layers)


def test_the_report_says_what_was_repeated_and_why_others_were_not():
    make, _ = CASES["a branch of one index"]
    model = make().eval()
    sets = [((torch.randn(size, 4),), {}) for size in SIZES]
    report = torchferry.export(model, sets, budget=0.2).report
    assert report.ok
    (section,) = [one for one in report.sections if one.title == "Identical layers"]
    assert section.blocks[0].pairs == (("traced once", "1 of 3 layers repeated"),)
    ((path, why),) = section.blocks[1].rows
    assert path == "layers.1"
    assert "layers.0 makes no more calls" in why
    assert report.data["repeated"]["like"] == {"layers.2": "layers.0"}
    assert report.data["repeated"]["reasons"]["layers.1"] == why
