import pytest
import torch

from torchferry.capturer.dispatch import (
    check,
    choose,
    invert,
    length,
    repeat,
    runs_over,
    scan_over,
    slices,
    stacked,
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


def test_a_name_without_a_tensor_is_refused():
    with pytest.raises(TypeError, match="holds a int"):
        repeat(lambda n, x: x.sum() < 20, lambda n, x: (n + 1, x * 2), (0, X))


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
    assert stacked([X, X]).shape == (2, 2)


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


@pytest.mark.parametrize(("count", "start"), [(3, 0), (2, 1), (1, -1)])
def test_no_more_slices_than_there_are(count, start):
    with pytest.raises(RuntimeError):
        slices(X, 0, count, start)


def test_a_known_number_of_steps_is_python_s():
    assert not runs_over(3, 0, X)
    assert not runs_over(3, 0, [X])


def test_lengths():
    assert [length(one) for one in (X, [X], torch.tensor(1), iter([X]), 5)] == [2, 1, 0, 0, 0]
