import pytest
import torch

from torchferry.capturer.rewrite.loop import (
    UNSET,
    State,
    are_alike,
    as_scalar,
    is_number,
    run_steps,
)
from torchferry.capturer.rewrite.walk import Growing, Walk

X = torch.ones(2)


def test_a_state_is_tensors_and_the_rest():
    state = State((X, [1, "a"], {"k": X * 2}))
    assert [one.tolist() for one in state.tensors] == [[1, 1], [2, 2]]
    assert state.filled([X * 3, X])[0].tolist() == [3, 3]


def test_a_number_that_changes_is_a_tensor():
    state = State((0, 2.5)).before(State((1, 2.5)))
    assert (state.values[0].dtype, state.values[1]) == (torch.int64, 2.5)
    assert state.following(State((7, 2.5)))[0].item() == 7
    assert State((0,)).before(State((0.5,))).values[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("before", "after"),
    [((0,), (X,)), ((None,), (X,)), ((UNSET,), (X,)), ((X,), (X[:1],)), ((X,), (X.long(),)),
     ((X,), ([X],)), (("a",), ("b",))],
)  # fmt: skip
def test_a_step_that_leaves_something_else_is_not_the_first_of_many(before, after):
    with pytest.raises(TypeError):
        State(before).before(State(after))


def test_what_two_branches_give():
    merged = State((0.5, X, 3)).either(State((X[0], X * 2, 3)))
    assert merged.values[2] == 3
    assert merged.following(State((0.5, X, 3)))[0].item() == 0.5
    for one, other, said in (("a", X, "holds a str"), (X, X.long(), "decides between"),
                             (None, X, "holds a NoneType")):  # fmt: skip
        with pytest.raises(TypeError, match=said):
            State((one,)).either(State((other,)))
    with pytest.raises(TypeError, match="unlike values"):
        State((X,)).either(State((X, X)))


def test_numbers():
    assert is_number(True)
    assert not is_number(X)
    assert as_scalar(3, X).dtype == torch.float32
    assert as_scalar(True).dtype == torch.bool
    assert are_alike(X, X * 2)
    assert not are_alike(X, X[:1])


def test_a_loop_within_a_loop_fills_no_list_of_outside():
    with pytest.raises(TypeError, match="outside of both"):
        run_steps(Walk(2, int), lambda now, y: (), (), (Growing(0, [], [], 0),))


class Recurs(torch.nn.Module):
    """A scan over all steps but the first, by hand."""

    def forward(self, x):
        def step(now, entries, s):
            s = x[now] if s is UNSET else s * 0.5 + x[now]
            entries.append(s if now is UNSET else s * 2)
            return (s,)

        y, s = run_steps(Walk(x.shape[0], lambda n: n), step, (UNSET,), ([],))
        return torch.stack(y), s


def test_the_first_step_may_differ():
    program = torch.export.export(
        Recurs(), (torch.rand(3, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    for n in (3, 5, 4):
        x, s, entries = torch.rand(n, 2), None, []
        for row in x:
            s = row if s is None else s * 0.5 + row
            entries.append(s * 2)
        y, last = program.module()(x)
        torch.testing.assert_close(y, torch.stack(entries))
        torch.testing.assert_close(last, s)
