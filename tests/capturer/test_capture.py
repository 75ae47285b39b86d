import inspect
import logging
import operator
import sys
from collections import OrderedDict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from torchferry.capturer import capture, find_fixed
from torchferry.errors import CaptureError
from torchferry.observer import Observation, observe
from torchferry.values import max_diff
from torchferry.values.clone import clone
from torchferry.zoo import get_tiny_llm

Point = namedtuple("Point", "left right")
SMALL = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 32, "head_dim": 16}
FIRST = "non-strict, sizes 0 and 1 not special"
PATCHED = "the same with patches"


def marked(mark):
    """``file:line: code`` of the line of this file that ends with a mark."""
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        if line.endswith(f"  # {mark}"):
            return f"{__file__}:{number}: {line.strip()}"
    raise LookupError(mark)


def seen_with(model, *sets):
    return Observation.from_inputs(model, sets)


def captured(model, *sets, **options):
    return capture(model.eval(), seen_with(model, *sets), **options)


def agree(program, model, args, kwargs):
    # Guards of transformers' code (no causal mask for one token) do not hold for the graph.
    got = program.module(check_guards=False)(*clone(args), **clone(kwargs))
    return max_diff(model(*clone(args), **clone(kwargs)), got).abs < 1e-4


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.linear(x)


class Fixes(torch.nn.Module):
    def forward(self, x):
        n = operator.index(x.shape[0])  # fixes x
        return torch.arange(n) + x.reshape(n, -1).sum(1)


class Branches(torch.nn.Module):
    def forward(self, x):
        if x.shape[1] == 4:  # branches
            return x + 1
        return x + 2


class FixesNested(torch.nn.Module):
    def forward(self, batch, *more, **options):
        ids = batch["ids of all"][0]
        a = ids * torch.ones(operator.index(ids.shape[0]), 1)  # nested
        b = more[1] * torch.ones(operator.index(more[1].shape[0]))  # more
        c = options["z"] * torch.ones(operator.index(options["z"].shape[0]))  # option
        return a, b, c, batch["free"] + 1


class FixesCache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = get_tiny_llm(**SMALL)["model"]

    def forward(self, input_ids, attention_mask, position_ids, past_key_values):
        length = operator.index(past_key_values.layers[0].keys.shape[2])  # cache
        outputs = self.inner(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=past_key_values,
        )
        return outputs.logits * length


class Adds(torch.nn.Module):
    def forward(self, x, y):
        return x + y  # adds


class Decides(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # decides
            return x + 1
        return x - 1


class Raises(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no good")  # raises


class Noisy(torch.nn.Module):
    def forward(self, x):
        sys.stdout.write("noise")
        sys.stderr.write("noise")
        logging.getLogger("torch").warning("noise")
        return x * 2


class Step(torch.nn.Module):
    def forward(self, x, state=None):
        if state is None:
            return x * 2
        if x.shape[1] != 1:
            raise ValueError("one step at a time")
        return x[:, 0] + state


class Anything(torch.nn.Module):
    def forward(self, a, /, b, *rest, c=None, **kw):
        return {"sum": a + b + rest[0] + kw["d"], "c": c * kw["e"]}


class Containers(torch.nn.Module):
    def forward(self, point, mapping):
        return Point(point.left + point.right, mapping["k"] * 2)


@pytest.mark.parametrize("sizes", [((2,), (5,)), ((1,), (3,)), ((4,), (1,))])
def test_dynamic_dimensions_survive(sizes):
    model = Linear()
    found = captured(model, *(((torch.randn(*size, 3),), {}) for size in sizes))
    assert found.fixed == ()
    assert found.sizes == {}
    assert [(a.strategy, a.error) for a in found.attempts] == [(FIRST, None)]
    for n in (1, 2, 7):
        assert agree(found.program, model, (), {"x": torch.randn(n, 3)})


def test_a_decoder_with_its_cache_is_dynamic_everywhere():
    model = get_tiny_llm(**SMALL)["model"]
    first, second, third = (
        get_tiny_llm(*size, **SMALL)["inputs"] for size in ((2, 30, 3), (3, 20, 4), (1, 5, 1))
    )
    found = captured(model, ((), first), ((), second))
    assert found.fixed == ()
    if "cache" in inspect.signature(model.forward).parameters:
        third["cache"] = third.pop("past_key_values")
    assert agree(found.program, model, (), third)


def test_what_generate_was_seen_to_do_can_be_captured():
    model = get_tiny_llm(**SMALL)["model"]
    with observe(model) as seen:
        for batch, length in ((2, 5), (3, 7)):
            ids = torch.randint(1, 99, (batch, length))
            mask = torch.ones_like(ids).index_fill(1, torch.tensor([0]), 0)
            model.generate(ids, attention_mask=mask, max_new_tokens=3, pad_token_id=0)
    found = capture(model, seen)
    assert found.fixed == ()
    for call in (call for call in seen.calls if seen.sizes_of(call)["past_sequence_length"]):
        args, kwargs = seen.normalized(call)
        assert agree(found.program, model, args, kwargs)


def test_every_kind_of_parameter():
    model = Anything()
    sets = [
        ((torch.randn(n, 3), torch.randn(n, 3), torch.randn(n, 3)), kwargs)
        for n, kwargs in (
            (2, {"e": torch.randn(4), "d": torch.randn(2, 3), "c": torch.randn(4)}),
            (5, {"c": torch.randn(6), "d": torch.randn(5, 3), "e": torch.randn(6)}),
        )
    ]
    found = captured(model, *sets)
    assert found.fixed == ()
    assert "forward" not in vars(model)
    args, kwargs = sets[0]
    ordered = {name: kwargs[name] for name in found.dynamic_shapes if name in kwargs}
    assert agree(found.program, model, args, ordered)


def test_named_arguments_in_another_order_than_the_signature():
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x.sum(0), y.sum(0)

    model = Two()
    sets = [((), {"y": torch.randn(n + 3, 3), "x": torch.randn(n, 5)}) for n in (2, 6)]
    found = captured(model, *sets)
    assert found.fixed == ()
    assert agree(found.program, model, *sets[0])


def test_named_tuples_and_ordered_dicts():
    model = Containers()
    sets = [
        ((Point(torch.randn(n, 3), torch.randn(n, 3)), OrderedDict(k=torch.randn(n))), {})
        for n in (2, 4)
    ]
    found = captured(model, *sets)
    assert found.fixed == ()
    args, _ = sets[0]
    assert agree(found.program, model, (), {"point": args[0], "mapping": args[1]})


def test_height_and_width_are_two_dimensions():
    class Image(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)

        def forward(self, pixel_values):
            return self.conv(pixel_values).mean((2, 3))

    model = Image()
    images = [((torch.randn(2, 3, 16, 20),), {}), ((torch.randn(3, 3, 24, 12),), {})]
    found = captured(model, *images)
    assert found.fixed == ()
    assert agree(found.program, model, (), {"pixel_values": torch.randn(1, 3, 9, 33)})


def test_a_size_made_a_constant_is_reported_with_the_line():
    model = Fixes()
    found = captured(model, ((torch.randn(3, 2),), {}), ((torch.randn(5, 2),), {}))
    (fixed,) = found.fixed
    assert (fixed.argument, fixed.axis, fixed.name, fixed.size) == ("x", 0, "batch_size", 3)
    assert fixed.line == marked("fixes x")
    assert str(fixed) == (f"dimension batch_size (x axis 0) was fixed to 3 by {marked('fixes x')}")
    assert found.sizes == {"batch_size": 3}
    (first, why), *_, (last, none) = [(a.strategy, a.error) for a in found.attempts]
    assert first == FIRST
    assert "your code specialized it to be a constant (3)" in why
    assert (last, none) == ("non-strict, fixed sizes allowed", None)


def test_a_branch_on_a_size_is_reported_with_the_line():
    found = captured(Branches(), ((torch.randn(2, 4),), {}), ((torch.randn(2, 5),), {}))
    (fixed,) = found.fixed
    assert (fixed.axis, fixed.line) == (1, marked("branches"))


def test_the_line_is_found_for_nested_positional_and_named_arguments():
    def given(n):
        batch = {"ids of all": [torch.randn(n, 2)], "free": torch.randn(n + 7, 2)}
        return ((batch, torch.randn(1), torch.randn(2 * n + 1)), {"z": torch.randn(n * n)})

    found = captured(FixesNested(), given(3), given(4))
    assert {(f.argument, f.axis): f.line for f in found.fixed} == {
        ("args.0.ids of all.0", 0): marked("nested"),
        ("args.2", 0): marked("more"),
        ("z", 0): marked("option"),
    }


@pytest.mark.slow
def test_the_line_is_found_for_a_cache():
    sets = [((), get_tiny_llm(*size, **SMALL)["inputs"]) for size in ((2, 30, 3), (3, 20, 4))]
    found = captured(FixesCache(), *sets)
    # Keys and values have one length, which is one symbol.
    assert [f.argument for f in found.fixed] == [
        "past_key_values.0.key",
        "past_key_values.0.value",
    ]
    for fixed in found.fixed:
        assert (fixed.axis, fixed.name, fixed.size) == (2, "past_sequence_length", 30)
        assert fixed.line == marked("cache")


def test_two_dimensions_made_one_are_tied():
    found = captured(
        Adds(), ((torch.randn(4), torch.randn(4)), {}), ((torch.randn(5), torch.randn(1)), {})
    )
    (fixed,) = found.fixed
    assert (fixed.argument, fixed.name, str(fixed.size)) == ("y", "y_dim_0", "batch_size")
    assert fixed.line == marked("adds")
    assert "was tied to batch_size" in str(fixed)
    assert found.sizes == {}


def test_a_branch_that_narrows_a_size_is_a_bound():
    class Narrows(torch.nn.Module):
        def forward(self, x, y):
            return (x + 1 if x.shape[0] > 2 else x - 1), y * 2

    sets = [((torch.randn(n, 2), torch.randn(n + 9, 2)), {}) for n in (4, 6)]
    seen = seen_with(Narrows(), *sets, ((torch.randn(7, 2), torch.randn(9, 2)), {}))
    bounds = capture(Narrows(), seen).bounds(seen)
    assert bounds["batch_size"] == (3, None)
    assert bounds["y_dim_0"][1] is None


def test_code_that_depends_on_values_is_an_error_that_names_the_line():
    with pytest.raises(CaptureError) as caught:
        captured(Decides(), ((torch.randn(4),), {}), ((torch.randn(5),), {}), rewrite=False)
    message = str(caught.value)
    assert "cannot capture Decides: the values of a tensor decide" in message
    assert f"at {marked('decides')}" in message
    assert "torch.where or torch.cond" in message
    assert len(message.splitlines()) <= 12
    strategies = [strategy for strategy, _ in caught.value.attempts]
    assert strategies == [FIRST, PATCHED, "non-strict", "strict"]
    assert all(f"  {s}: {why}" in message for s, why in caught.value.attempts)


def test_a_size_of_1_is_enlarged_unless_the_model_takes_no_other():
    model = Step()
    step = [((torch.randn(n, 1, 4), torch.randn(n, 4)), {}) for n in (2, 5)]
    found = captured(model, ((torch.randn(3, 5, 4),), {}), *step)
    assert found.attempts[-2].strategy == "non-strict, sizes of 0 and 1 as seen"
    (fixed,) = found.fixed
    assert (fixed.argument, fixed.axis, fixed.size) == ("x", 1, 1)


def test_a_forward_that_raises_is_an_error_that_names_the_line():
    with pytest.raises(CaptureError, match="no good") as caught:
        captured(Raises(), ((torch.randn(4),), {}), ((torch.randn(5),), {}))
    assert f"it failed, at {marked('raises')}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("model", [Fixes(), Noisy(), Decides(), Raises(), Step()], ids=type)
def test_nothing_is_printed(model, capfd):
    state = (torch.randn(1, 2),) if isinstance(model, Step) else ()
    try:
        captured(model, *(((torch.randn(n, 1, 2), *state), {}) for n in (4, 5)))
    except CaptureError:
        assert isinstance(model, (Decides, Raises))
    assert capfd.readouterr() == ("", "")


def test_the_model_and_its_inputs_are_left_as_they_were():
    model = Linear().train()
    x = torch.randn(2, 3)
    seen = seen_with(model, ((x,), {}), ((torch.randn(4, 3),), {}))
    before = {name: p.clone() for name, p in model.named_parameters()}, x.clone()
    capture(model, seen)
    assert model.training
    assert all(torch.equal(p, before[0][name]) for name, p in model.named_parameters())
    assert torch.equal(x, before[1])


def test_a_program_exported_elsewhere_is_examined_too():
    program = torch.export.export(Linear(), (torch.randn(3, 3),))
    x = [((torch.randn(n, 3),), {}) for n in (3, 4)]
    (fixed,) = find_fixed(program, _positional(x))
    assert (fixed.name, fixed.size, fixed.line) == ("batch_size", 3, None)


def _positional(sets):
    class Given(torch.nn.Module):
        def forward(self, *args):
            raise NotImplementedError

    return seen_with(Given(), *sets)


def test_threads_capture_one_after_the_other_and_leave_the_streams_alone():
    streams, logger = (sys.stdout, sys.stderr), logging.getLogger("torch.fx")
    before = logger.getEffectiveLevel()

    def work(width):
        model = torch.nn.Linear(width, 2)
        with observe(model) as seen:
            model(torch.randn(2, width))
            model(torch.randn(3, width))
        return capture(model, seen).fixed

    with ThreadPoolExecutor(3) as executor:
        assert list(executor.map(work, (3, 4, 5))) == [(), (), ()]
    assert (sys.stdout, sys.stderr) == streams
    assert logger.getEffectiveLevel() == before


class Asks(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_a_large_model_is_traced_twice_before_it_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules[capture.__module__], "_LARGE", 0)
    seen = Observation.from_inputs(Asks(), [(torch.ones(n),) for n in (2, 3)])
    steps = []
    with pytest.raises(CaptureError, match="the values of a tensor decide") as caught:
        capture(Asks(), seen, rewrite=False, progress=steps.append)
    assert [text for text, _ in caught.value.attempts] == [FIRST, "the same with patches"]
    assert [step.rpartition(" (")[2] for step in steps] == [
        "trace 1 of at most 2)", "trace 2 of at most 2)",
    ]  # fmt: skip
