import pytest
import torch

from torchferry.capturer.rewrite.dispatch import (
    both,
    check,
    choose,
    collect,
    decide,
    either,
    entry,
    every,
    fill,
    greatest,
    invert,
    is_walk,
    items,
    least,
    length,
    listed,
    pick,
    put,
    repeat,
    some,
    total,
)
from torchferry.capturer.rewrite.walk import Rows, Walk

X = torch.tensor([1.0, 2.0])


def test_python_decides_as_python():
    assert choose([1], lambda _: ("then",), lambda _: ("else",)) == ("then",)
    assert choose(0, lambda _: ("then",), lambda _: ("else",)) == ("else",)
    assert repeat(lambda n: n < 5, lambda n: (n + 2,), (0,)) == (6,)
    assert invert(0) is True


@pytest.mark.parametrize("positive", [True, False])
def test_a_tensor_decides_with_cond(positive):
    test = torch.tensor([positive])
    (y,) = choose(test, lambda _: (X + 1,), lambda _: (X,))
    assert y.tolist() == ([2, 3] if positive else [1, 2])
    assert invert(test).item() is not positive


def test_a_tensor_decides_how_often():
    n, x = repeat(
        lambda n, x: x.sum() < 20, lambda n, x: (n + 1, x * 2), (torch.tensor(0), X.clone())
    )
    assert (n.item(), x.tolist()) == (3, [8, 16])


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_and_and_or(a, b):
    for first in (a, torch.tensor([a])):
        for second in (b, torch.tensor(b)):
            assert bool(both(first, lambda second=second: second)) is (a and b)
            assert bool(either(first, lambda second=second: second)) is (a or b)
    assert both([], lambda: 1 / 0) == []
    assert either(3, lambda: 1 / 0) == 3


@pytest.mark.parametrize("positive", [True, False])
def test_what_is_returned_may_be_nested(positive):
    def then(own):
        return {"y": X + 1, "z": (X,)}

    def other(own):
        return {"y": X, "z": (X * 2,)}

    for test in (positive, torch.tensor(positive)):
        found = decide(test, then, other)
        assert found["y"].tolist() == ([2, 3] if positive else [1, 2])
        assert found["z"][0].tolist() == ([1, 2] if positive else [2, 4])


Y = torch.arange(24.0).reshape(2, 3, 4)


def test_what_all_steps_write():
    want, found = Y.clone(), Y.clone()
    want[:, 1:] = 5
    walk = Walk(2, lambda n: 2 - n, 2, -1)
    fill(found, 1, walk, Rows(torch.stack([entry(found, 1, 5)] * 2)))
    assert torch.equal(found, want)
    walk = Walk(2, lambda n: 2 * n, 0, 2)
    fill(found, 1, walk, Rows(torch.stack([entry(Y, 1, Y[:, n] * 2) for n in (0, 2)])))
    assert torch.equal(found[:, ::2], Y[:, ::2] * 2)


def test_an_item_is_put():
    found, values = Y.clone(), {}
    put(found, (1, 2), 7.0)
    put(values, ("a", 1), 3)
    assert (found[1, 2].tolist(), values) == ([7.0] * 4, {("a", 1): 3})


def test_loops_in_brackets_are_python_s_where_nothing_is_symbolic():
    assert collect([1, 2], lambda n: n + 1) == [2, 3]
    assert (total([1, 2], 3), every([1, 0]), some([0, 1])) == (6, False, True)
    assert (greatest([1, 3]), least([3, 1]), listed((1, 2))) == (3, 1, [1, 2])
    assert not is_walk([1])
    assert not is_walk(Walk(2, int))  # no trace


def test_tensors_in_brackets():
    rows = Rows(X)
    assert (total(rows).item(), greatest(rows).item(), least(rows).item()) == (3, 2, 1)
    assert every([X[0] > 0, True]).item() is True
    assert some([X[0] > 5, False]).item() is False
    assert greatest([X[0], X[1]]).item() == 2
    with pytest.raises(TypeError, match="more than one number"):
        every(Rows(Y))


def test_items_by_number():
    found = items(range(1, 9, 3))
    assert (length(found), pick(found, 1), pick(found, torch.tensor(2))) == (3, 4, 7)
    walk = Walk(5, lambda n: n * 2)
    assert (length(items(walk)), pick(walk, 2), pick(walk, torch.tensor(3))) == (5, 4, 6)
    with pytest.raises(TypeError, match="other things than numbers"):
        pick([1, 5, 6], torch.tensor(1))


def test_checks():
    def fail():
        raise KeyError("it")

    check(False, fail)
    check(torch.tensor(False), fail)
    with pytest.raises(KeyError):
        check(True, fail)
    with pytest.raises(RuntimeError):
        check(torch.tensor(True), fail)
