import pytest
import torch

from torchferry.capturer.rewrite.dispatch import (
    as_bool,
    as_float,
    as_int,
    at,
    both,
    cat,
    check,
    choose,
    decide,
    either,
    entry,
    fill,
    invert,
    item,
    length,
    numbers,
    put,
    repeat,
    rows,
    runs_over,
    scan_over,
    slices,
    stack,
)

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


def test_a_number_that_a_tensor_decides_becomes_a_tensor():
    n, x = repeat(lambda n, x: x.sum() < 20, lambda n, x: (n + 1, x * 2), (0, X))
    assert (n.item(), n.dtype, x.tolist()) == (3, torch.int64, [8, 16])
    k, flag = choose(X.sum() > 0, lambda _: (0.5, True), lambda _: (X[0], False))
    assert (k.dtype, k.item(), flag.item()) == (torch.float32, 0.5, True)


def test_a_name_without_a_tensor_is_refused():
    with pytest.raises(TypeError, match="holds a str"):
        repeat(lambda n, x: x.sum() < 20, lambda n, x: (n, x * 2), ("n", X))


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_and_and_or(a, b):
    for first in (a, torch.tensor([a])):
        for second in (b, torch.tensor(b)):
            assert bool(both(first, lambda second=second: second)) is (a and b)
            assert bool(either(first, lambda second=second: second)) is (a or b)
    assert both([], lambda: 1 / 0) == []
    assert either(3, lambda: 1 / 0) == 3


def test_numbers_that_are_asked_for_stay_tensors():
    tenth = torch.tensor([0.1])
    assert (item(tenth) > 0.1).item() is (tenth.item() > 0.1)
    assert item(torch.tensor(True)).dtype == torch.bool
    assert item(torch.tensor([3], dtype=torch.int8)).dtype == torch.int64
    assert (as_int(torch.tensor(-2.7)).item(), as_int(True), as_int("3")) == (-2, 1, 3)
    assert (as_float(torch.tensor(2)).item(), as_float("2")) == (2.0, 2.0)
    assert (as_bool(torch.tensor(2.0)).item(), as_bool([])) == (True, False)
    with pytest.raises(RuntimeError):
        item(X)


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


@pytest.mark.parametrize("number", [0, 2, -1])
def test_numbers_of_an_index_may_be_tensors(number):
    t = torch.tensor(number)
    assert torch.equal(at(Y, (slice(None), t)), Y[:, number])
    assert torch.equal(at(Y, (slice(None), t, slice(1, 3))), Y[:, number, 1:3])
    assert torch.equal(at(Y, (..., t)), Y[..., number])
    assert torch.equal(at(Y, (..., t, 1)), Y[..., number, 1])
    assert torch.equal(at(Y, (None, 1, t)), Y[None, 1, number])
    assert torch.equal(at(Y, (1, t, t)), Y[1, number, number])
    for index, there in (
        ((slice(None), t), (slice(None), number)),
        ((1, t, slice(1, 3)), (1, number, slice(1, 3))),
        ((..., t), (..., number)),
        ((..., t, 1), (..., number, 1)),
    ):
        for value in (7, torch.tensor(True), Y[there] * 2):
            want = Y.clone()
            want[there] = value
            assert torch.equal(put(Y, index, value), want)
    with pytest.raises(TypeError, match="two numbers"):
        put(Y, (1, t, t), 0)
    with pytest.raises(TypeError, match="counts through a list"):
        at([X], t)
    with pytest.raises(TypeError, match="bounds of a slice"):
        at(Y, slice(t, None))


def test_what_all_steps_write():
    want, found = Y.clone(), Y.clone()
    want[:, 1:] = 5
    fill(found, 1, 1, torch.stack([entry(found, 1, 5)] * 2), True)
    assert torch.equal(found, want)
    fill(found, 1, 0, torch.stack([entry(Y, 1, Y[:, n] * 2) for n in (2, 1, 0)]), True)
    assert torch.equal(found, Y * 2)
    with pytest.raises(RuntimeError):
        fill(found, 1, 2, torch.stack([entry(Y, 1, 1)] * 2), False)


def test_lists_that_a_loop_appends_to():
    items = [*Y]
    entries = rows([], Y)
    for axis in (0, 1, -1):
        assert torch.equal(stack(entries, axis), stack(items, axis))
        assert torch.equal(cat(entries, axis), cat(items, axis))
    assert torch.equal(rows([Y[1]], Y), torch.stack([Y[1], *Y]))


def test_checks():
    def fail():
        raise KeyError("it")

    check(False, fail)
    check(torch.tensor(False), fail)
    with pytest.raises(KeyError):
        check(True, fail)
    with pytest.raises(RuntimeError):
        check(torch.tensor(True), fail)


def test_a_scan_over_two_tensors():
    (h,), (ys,) = scan_over(
        lambda h, a, b: ((h + a * b,), (h,)),
        (torch.zeros(2),),
        (torch.ones(3, 2), torch.ones(3, 2)),
    )
    assert h.tolist() == [3, 3]
    assert ys.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_a_scan_that_carries_nothing():
    nothing, (ys,) = scan_over(lambda a: ((), (a * 2,)), (), (torch.ones(3, 2),))
    assert (nothing, ys.tolist()) == ((), [[2, 2]] * 3)


def test_one_tensor_under_two_names():
    (h, c), () = scan_over(lambda h, c, a: ((h + a, c * 2), ()), (X, X), (torch.ones(3, 2),))
    assert (h.tolist(), c.tolist()) == ([4, 5], [8, 16])


def test_a_slice_may_be_carried_and_collected_as_it_is():
    (last,), (rows,) = scan_over(lambda h, row: ((row,), (row,)), (X,), (torch.eye(2),))
    assert last.tolist() == [0, 1]
    assert rows.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("count", "start", "want"),
    [(2, 0, 2), (3, 0, 3), (0, 0, 0), (-1, 0, 0), (2, 1, 3), (-1, 2, 2)],
)
def test_the_slices_along_an_axis(count, start, want):
    x = torch.arange(12).reshape(4, 3)
    assert torch.equal(slices(x, 1, count, start), x.T[start:want])
    assert torch.equal(slices(x, 1, count, start, True), x.T[start:want].flip(0))
    assert numbers(count, start, False).tolist() == [*range(start, want)]
    assert numbers(count, start, True).tolist() == [*range(start, want)][::-1]


@pytest.mark.parametrize(("count", "start"), [(3, 0), (2, 1), (1, -1)])
def test_no_more_slices_than_there_are(count, start):
    with pytest.raises(RuntimeError):
        slices(X, 0, count, start)


def test_a_known_number_of_steps_is_python_s():
    assert not runs_over(3, 0, X)
    assert not runs_over(3, 0, [X])


def test_lengths():
    assert [length(one) for one in (X, [X], torch.tensor(1), iter([X]), 5)] == [2, 1, 0, 0, 0]
    assert length(Y, 1) == 3
