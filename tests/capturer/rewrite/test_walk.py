import pytest
import torch

from torchferry.capturer.rewrite.walk import (
    Deeper,
    Growing,
    Rows,
    Walk,
    at_least,
    enumerated,
    require,
    reversed_,
    sections,
    unbound,
    walk,
    walk_range,
    zipped,
)

X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("bounds", [(3,), (1, 4), (0, 7, 3), (9, 1, -2), (2, 1), (5, 0, -1)])
def test_a_known_range(bounds):
    assert list(walk_range(*bounds)) == list(range(*bounds))


def test_what_is_known_is_python_s():
    assert [one.tolist() for one in walk(X)] == X.tolist()
    assert list(zipped([1, 2], [3, 4])) == [(1, 3), (2, 4)]
    assert list(enumerated([5], 1)) == [(1, 5)]
    assert list(reversed_([1, 2])) == [2, 1]
    assert [len(one) for one in sections(torch.arange(5), 2)] == [2, 2, 1]
    assert [one.shape[1] for one in sections(X, 2, 1)] == [2, 1]
    assert sections("a b", " ") == ["a", "b"]
    assert len(unbound(X, 1)) == 3
    assert (at_least(1, 2), at_least(3, 2)) == (2, 3)
    with pytest.raises(RuntimeError):
        require(False)


def test_walks_within_walks():
    rows = Walk(3, lambda n: n * 10, 0, 10)
    back = reversed_(enumerated(zipped(rows, rows), 1))
    assert [back.item(n) for n in range(3)] == [(3, (20, 20)), (2, (10, 10)), (1, (0, 0))]
    assert (reversed_(rows).start, reversed_(rows).step) == (20, -10)
    with pytest.raises(TypeError, match="over a list at once"):
        zipped(rows, [1, 2, 3])


def test_rows_are_a_list():
    rows, entries = Rows(X), [*X]
    for dim in (0, 1, -1):
        assert torch.equal(torch.stack(rows, dim), torch.stack(entries, dim))
        assert torch.equal(torch.cat(rows, dim), torch.cat(entries, dim))
        assert torch.equal(torch.cat(tensors=rows, dim=dim), torch.cat(entries, dim))
    assert torch.equal(rows[-1], X[-1])
    assert torch.equal(rows[::-1].data, X.flip(0))
    both = [X[0]] + rows + [X[1]]  # noqa: RUF005  (adding is what is tested)
    assert torch.equal(both.data, torch.stack([X[0], *X, X[1]]))
    rows.append(X[0])
    rows.insert(0, X[1])
    rows.extend([X[1]])
    assert (rows.length, torch.equal(rows.pop(), X[1]), rows.length) == (5, True, 4)
    rows.reverse()
    rows += Rows(X)
    assert torch.equal(rows.data, torch.stack([X[0], X[1], X[0], X[1], *X]))
    assert bool(rows)


@pytest.mark.parametrize(
    "use", [len, list, lambda rows: rows.sort(), lambda rows: rows * 2, torch.vstack]
)
def test_what_rows_cannot_do_is_said(use):
    with pytest.raises(TypeError, match="a loop over a dynamic size fills"):
        use(Rows(X))


def test_a_growing_list():
    found = Growing(1, [X[0], X[1]], [X[1]], 2)
    assert torch.equal(found[-1], X[1])
    assert torch.equal(found[0], X[0])
    found.append(X[0] * 2)
    found += [X[0] * 3]
    assert found.length == 4
    assert torch.equal(found[-2:][0], X[0] * 2)
    assert torch.equal(found.last(3)[0], X[1])
    with pytest.raises(Deeper) as deeper:
        found[-4]
    assert (deeper.value.number, deeper.value.place) == (1, 2)
    with pytest.raises(IndexError):
        found[-5]
    with pytest.raises(TypeError, match="used for more"):
        found.sort()
    front = Growing(0, [], [], 0)
    front.insert(0, X)
    assert front.front
    with pytest.raises(TypeError):
        front[-1]
