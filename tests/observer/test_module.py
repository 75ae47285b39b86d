"""Modules that cannot be captured as they stand are told apart at the door."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import torchferry as tf
from torchferry.errors import CaptureError, ConversionError, UsageError
from torchferry.observer import Observation
from torchferry.observer.module import prepare_module

SETS = [(torch.rand(2, 3),), (torch.rand(4, 3),)]


ENTRIES = {
    "export": lambda model: tf.export(model, SETS, check=False, progress=False),
    "to_onnx": lambda model: tf.to_onnx(model, SETS[0]),
    "capture": lambda model: tf.capture(model, Observation.from_inputs(nn.Linear(3, 2), SETS)),
}
by_entry = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@by_entry
def test_code_that_is_gone_is_refused(entry):
    linear = nn.Linear(3, 2).eval()
    with pytest.raises(UsageError, match=r"torch\.jit, which has no Python code"):
        entry(torch.jit.trace(linear, SETS[0]))
    with pytest.raises(UsageError, match=r"give model\._orig_mod"):
        entry(torch.compile(linear, backend="eager"))


@by_entry
def test_a_first_call_gives_lazy_parameters_their_sizes(entry):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)).eval()
    made = entry(model)
    x = torch.rand(*SETS[0][0].shape)
    torch.testing.assert_close(made(x), model(x))


def by_name(module, args, kwargs):
    return args, {name: value + 1 for name, value in kwargs.items()}


def alike(module, args, kwargs):
    return tuple(x + 1 for x in args), {name: value + 1 for name, value in kwargs.items()}


@by_entry
def test_hooks_that_hear_keywords(entry):
    model = nn.Linear(3, 2).eval()
    handle = model.register_forward_pre_hook(by_name, with_kwargs=True)
    with pytest.raises(UsageError, match=r"make model\(x\) another thing"):
        entry(model)
    handle.remove()
    model.register_forward_pre_hook(alike, with_kwargs=True)
    x = SETS[0][0]
    torch.testing.assert_close(entry(model)(x), model(x))


@by_entry
def test_hooks_that_read_positions(entry):
    """Of m(x=x) they see no inputs."""
    model = nn.Linear(3, 2).eval()
    model.register_forward_hook(lambda _, inputs, output: output * len(inputs))
    with pytest.raises(UsageError, match=r"make model\(x\) another thing"):
        entry(model)
    model = nn.Linear(3, 2).eval()
    model.register_forward_hook(lambda _, inputs, output: output + inputs[0].sum())
    with pytest.raises(UsageError, match=r"make model\(x\) another thing"):
        entry(model)


def doubled(forward):
    """What was given by position twice as large, as old casting decorators did."""

    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        return forward(self, *(x * 2 for x in args), **kwargs)

    return wrapper


class Decorated(nn.Linear):
    @doubled
    def forward(self, x):
        return super().forward(x)


@by_entry
def test_a_decorator_that_tells_positions(entry):
    with pytest.raises(UsageError, match="a decorator of forward"):
        entry(Decorated(3, 2).eval())


def test_a_call_that_has_one_form_is_let_through():
    class Sum(nn.Module):
        def forward(self, *xs):
            return sum(xs)

    model = Sum()
    model.register_forward_pre_hook(by_name, with_kwargs=True)
    prepare_module(model, "capture", (torch.ones(2), torch.ones(2)), {})
    prepare_module(model, "capture", (), {"y": torch.ones(2)})  # which the call itself refuses


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


@by_entry
def test_parametrized_weights_that_are_kept_stay_numbers(entry):
    model = nn.Linear(3, 3).eval()
    parametrize.register_parametrization(model, "weight", Symmetric())
    x = SETS[0][0]
    with parametrize.cached():
        wanted = model(x)
        torch.testing.assert_close(entry(model)(x), wanted)
        assert type(model(x)) is torch.Tensor
        torch.testing.assert_close(model(x), wanted)


class Keys(nn.Module):
    def forward(self, parts):
        return {"": parts["a"] + parts["b"].sum(), "a b": parts["a"], 0: parts["b"]}


def test_any_key_names_an_output():
    parts = {"a": torch.rand(2, 3), "b": torch.rand(2, 3)}
    made = tf.to_onnx(Keys(), (parts,))
    assert [value.name for value in made.model.graph.outputs] == ["output_", "a b", "output_0"]
    torch.testing.assert_close(made(parts), Keys()(parts))


def test_a_capture_says_in_its_own_words_what_it_does_not_take():
    sets = [({"a": torch.rand(n, 3), "b": torch.rand(n, 3)},) for n in (2, 4)]
    made = tf.capture(Keys(), Observation.from_inputs(Keys(), sets))
    a, wide = torch.rand(5, 3), torch.rand(5, 4)
    for given, words in (({"a": a}, "input tree spec"), ({"a": wide, "b": a}, "Guard failed")):
        with pytest.raises(UsageError, match=f"captured for other arguments than .*{words}"):
            made(given)


class Silent(nn.Module):
    def forward(self, x):
        x.sum()


def test_a_model_that_returns_nothing_is_told():
    with pytest.raises(ConversionError, match="forward returns no tensor"):
        tf.to_onnx(Silent(), SETS[0])


class Jacobian(nn.Module):
    def forward(self, x):
        return torch.func.vmap(torch.func.jacrev(lambda row: row.sin() * row.sum()))(x)


def test_a_trace_that_fails_leaves_no_transform_under_way():
    model = Jacobian()
    with pytest.raises(CaptureError):
        tf.capture(model, Observation.from_inputs(model, SETS))
    assert type(model(SETS[0][0])) is torch.Tensor
    with pytest.raises(CaptureError):
        tf.to_onnx(model, SETS[0])
    x = torch.rand(2, 3)
    assert tf.to_onnx(nn.Linear(3, 2), (x,))(x).shape == (2, 2)
