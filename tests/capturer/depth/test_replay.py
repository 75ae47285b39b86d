"""Stand-ins, and when a call is that of a note."""

import pytest
import torch

from torchferry.capturer.depth.note import Note
from torchferry.capturer.depth.replay import Escaped, Replay, StandIn, resolved
from torchferry.seams.layers import RESULTS
from torchferry.seams.pytorch import FakeTensorMode


@pytest.fixture
def fake():
    mode = FakeTensorMode()
    with mode:
        yield mode.from_tensor
    RESULTS.clear()


def run(x, weight, bias):
    hidden = torch.add(x, weight, alpha=2)
    assert hidden.shape[0] == 2
    return torch.relu(hidden * bias)


def noted(*given):
    note = Note("layers.0", ())
    with Replay("layers.0", (), [], new=True) as replay:
        run(*given)
    note = replay.note
    assert note is not None
    note.finish()
    RESULTS[note.path] = note.kept
    return note


def test_equal_calls_are_answered_and_not_made(fake):
    note = noted(*(fake(torch.zeros(2, 3)) for _ in range(3)))
    replay = Replay("layers.1", (), [note], new=True)
    given = [fake(torch.ones(2, 3)) for _ in range(3)]
    with replay:
        result = run(*given)
        assert result.device == torch.device("cpu")
    assert isinstance(result, StandIn)
    assert replay.count == len(note.calls) == 4
    assert replay.note is None
    with pytest.raises(Escaped, match=r"layers\.1"):
        result + 1
    assert replay.escaped


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([(2, 3), (2, 3), (3,)], "call 3: it takes a tensor of float32 and (3,), not float32 and"),
        ([(2, 3), (2, 1), (2, 3)], "call 1: it takes a tensor of float32 and (2, 1), not float32"),
        ([(2, 3), (2, 3), None], "call 3: it takes a tensor that is no parameter and not"),
    ],
)
def test_the_first_call_that_differs_is_named(fake, given, reason):
    note = noted(*(fake(torch.zeros(2, 3)) for _ in range(3)))
    replay = Replay("layers.1", (), [note], new=False)
    tensors = [3 if shape is None else fake(torch.ones(shape)) for shape in given]
    with replay:
        result = run(*tensors)
    assert replay.note is not None
    assert replay.reason.startswith(reason)
    assert not isinstance(result, StandIn)
    assert result.shape == (2, 3)


def test_another_state_of_torch_is_another_layer(fake):
    note = noted(*(fake(torch.zeros(2, 3)) for _ in range(3)))
    assert Replay("layers.1", (1,), [note], new=True).reason == "it runs in another state of torch"


def test_stand_ins_in_containers_are_replaced(fake):
    replay, one, two = object(), fake(torch.zeros(1)), fake(torch.zeros(2))
    a, b = StandIn(replay, 0, one), StandIn(replay, 1, two)
    a.actual, b.actual = one, two
    inner = [a, 1]
    value = (inner, {"x": b}, slice(None), "text")
    got = resolved(value)
    assert got[0] is inner
    assert inner[0] is one
    assert got[1]["x"] is two
    assert got[2:] == (slice(None), "text")
    same = (1, [2])
    assert resolved(same) is same
    assert (a + b).shape == (2,)  # torch calls what they stand for
