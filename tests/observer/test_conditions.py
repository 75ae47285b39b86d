"""Tests on sizes that were decided when a program was captured are made again in every call."""

import operator

import pytest
import torch

import torchferry
from torchferry.errors import UsageError
from torchferry.observer.conditions import conditions_of

DYNAMIC = torch.export.Dim.DYNAMIC


class Model(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return self.body(x, y)


CASES = {
    "larger": (lambda x, y: x * 2 if x.shape[0] > 5 else x, "a > 5", 6, 5),
    "modulo": (lambda x, y: x * 2 if x.shape[0] % 4 == 2 else x, "a % 4 == 2", 6, 8),
    "unequal": (lambda x, y: x * 2 if x.shape[0] != 6 else x, "a != 6", 7, 6),
    "of two inputs": (lambda x, y: x * 2 if x.shape[0] > y.shape[0] else x, "a > b", 5, 3),
    "a number": (
        lambda x, y: x.new_zeros(operator.index(torch.sym_int(x.shape[0] * 0.3))),
        "math.trunc(0.3 * a) == 3", 12, 9,
    ),
    "a view": (lambda x, y: x[:, :2].reshape(-1, 4) + 1, "2 * a == 4 or 2 * a % 4 == 0", 8, 9),
    "before a write in place": (
        lambda x, y: torch.zeros_like(x[1:]).add_(1) if x.shape[0] > 5 else x, "a > 5", 7, 4,
    ),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_call_that_breaks_one_is_refused(name):
    body, text, right, wrong = CASES[name]
    model = Model(body)
    shapes = ({0: "a"}, {0: "b"})
    program = torchferry.to_onnx(
        model, (torch.randn(10, 3), torch.randn(4)), dynamic_shapes=shapes
    )
    inputs = torch.randn(right, 3), torch.randn(4)
    assert torch.equal(program(*inputs), model(*inputs))
    with pytest.raises(UsageError, match="exported for sizes with") as refused:
        program(torch.randn(wrong, 3), torch.randn(4))
    assert f"sizes with {text}, and a is {wrong}" in str(refused.value)


def test_they_survive_a_file(tmp_path):
    model = Model(CASES["larger"][0])
    shapes = ({0: "a"}, None)
    program = torchferry.to_onnx(
        model, (torch.randn(10, 3), torch.randn(4)), dynamic_shapes=shapes
    )
    loaded = torchferry.load(program.save(tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="exported for sizes with a > 5, and a is 2"):
        loaded(torch.randn(2, 3), torch.randn(4))


def test_sizes_of_nested_and_variadic_inputs_are_found():
    class Nested(torch.nn.Module):
        def forward(self, x, d, *xs, **named):
            n = x.shape[0] + d["a"][0].shape[0]
            more = xs[0].shape[0] > 2 and named["z"].shape[0] > 1
            return x * 2 if n > 5 and more else x

    model = Nested()
    with torchferry.observe(model) as seen:
        for n in (4, 5, 6):
            a, xs, z = torch.randn(n + 1), torch.randn(3 * n), torch.randn(n * n)
            model(torch.randn(n), {"a": [a]}, xs, z=z)
    found = conditions_of(torchferry.capture(model, seen).program, str)
    tests = {condition.test for condition in found} - {"n0 != 0", "n0 != 1"}
    assert tests == {"n0 + n1 > 5", "n0 > 1", "n0 > 2"}


def test_a_guard_that_is_no_test_of_sizes_holds_them_as_they_were():
    model = Model(CASES["larger"][0])
    shapes = ({0: DYNAMIC}, None)
    program = torch.export.export(
        model, (torch.randn(10, 3), torch.randn(4)), dynamic_shapes=shapes
    )
    program._guards_code = ["L['x'].stride()[0] > 2"]
    (condition, *_) = conditions_of(program)
    assert condition.test == "n0 == 10"


def masked(x, y):
    if x.shape[0] > 1:
        y = y + torch.zeros_like(y)
    return x + y.sum()


def test_a_guard_against_size_1_goes_where_the_model_computes_the_same():
    model = Model(masked)
    given = torch.randn(10, 3), torch.randn(4)
    program = torchferry.to_onnx(model, given, dynamic_shapes=({0: "rows"}, None))
    inputs = torch.randn(1, 3), torch.randn(4)
    torch.testing.assert_close(program(*inputs), model(*inputs))


def test_a_guard_against_size_1_stays_where_the_model_computes_something_else(tmp_path):
    model = Model(lambda x, y: x + y.sum() if x.shape[0] > 1 else x - y.sum())
    given = torch.randn(10, 3), torch.randn(4)
    program = torchferry.to_onnx(model, given, dynamic_shapes=({0: "rows"}, None))
    for one in (program, torchferry.load(program.save(tmp_path / "m.onnx"))):
        with pytest.raises(UsageError, match="sizes with rows > 1, and rows is 1"):
            one(torch.randn(1, 3), torch.randn(4))


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: x.squeeze() * 2,
        lambda x, y: x.squeeze(0).sum(-1),
        lambda x, y: (x[1:] * 2).squeeze((0,)) + y.sum(),
    ],
)
def test_a_size_that_may_be_squeezed_is_not_1(body):
    """torch denies that it is 1 and keeps no guard; its own program squeezes when it runs."""
    model = Model(body)
    program = torchferry.to_onnx(
        model, (torch.randn(10, 3), torch.randn(4)), dynamic_shapes=({0: "rows"}, None)
    )
    for rows in (1, 2, 5):
        inputs = torch.randn(rows, 3), torch.randn(4)
        try:
            got = program(*inputs)
        except UsageError:
            assert rows < 3
            continue
        torch.testing.assert_close(got, model(*inputs))


def test_what_an_operator_asks_is_told_from_what_code_asks():
    """Strides of a view are an operator's choice; the ``if`` before it is not."""

    def body(x, y):
        z = x.view(x.shape[0], -1, 7) if x.shape[1] % 7 == 0 else x[:, None]
        return z.transpose(1, 2).reshape(-1, 7), y

    program = torch.export.export(
        Model(body), (torch.randn(4, 14), torch.randn(2)),
        dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC}, None),
    )  # fmt: skip
    found = {str(one): one.choice for one in conditions_of(program)}
    asked = [text for text, choice in found.items() if not choice]
    assert len(asked) == 1
    assert "% 7 == 0" in asked[0]
    assert len(found) > 1


def test_a_constant_integer_in_a_program_that_is_traced_again():
    """Writes in place make torch trace it anew, with a symbol for the integer."""

    class Window(torch.nn.Module):
        def forward(self, x, size):
            y = torch.zeros_like(x)
            y[:, 2 : 2 + size] += x[:, 2 : 2 + size]
            return y

    sets = [((torch.randn(n, 12), 6), {}) for n in (2, 3)]
    for check in (True, False):
        program = torchferry.export(Window(), sets, check=check)
        x = torch.randn(5, 12)
        assert torch.equal(program(x, 6), Window()(x, 6))
        with pytest.raises(UsageError, match="size was exported as 6 and cannot be 5"):
            program(x, 5)
