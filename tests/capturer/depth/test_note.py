"""What is noted of a layer, and what stands in the way of comparing others with it."""

import collections

import pytest
import torch

from torchferry.capturer.depth.note import Note, parts_of, rebuild
from torchferry.seams.pytorch import FakeTensorMode


@pytest.fixture
def fake():
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        yield mode.from_tensor


REAL = torch.zeros(2)


def note():
    return Note("layers.0", ())


def test_calls_tensors_and_their_order(fake):
    noted, x, y = note(), fake(torch.zeros(2, 3)), fake(torch.zeros(3))
    z = noted.record(torch.add, (x, y), {"alpha": 2})
    assert noted.record(torch.Tensor.add_, (z, 1), {}) is z
    first, *_ = noted.record(torch.unbind, (z,), {"dim": 0})
    assert noted.record(torch.Tensor.size, (first, 0), {}) == 3
    assert list(noted.record(torch.Tensor.__iter__, (x,), {}))
    noted.finish()
    assert noted.flaw == ""
    assert noted.given[0] is x
    assert noted.given[1] is y
    assert len(noted.given) == 2
    assert noted.kept[0] is z
    assert noted.calls[0].form == (
        tuple, [(tuple, [("given", 0), ("given", 1)]),
                (dict, [("value", "alpha"), ("value", 2)])],
    )  # fmt: skip
    assert [call.result for call in noted.calls[:2]] == [("made", 0), ("made", 0)]
    assert noted.calls[2].result == (tuple, [("made", 1), ("made", 2)])
    assert noted.calls[4].result[0] is iter
    assert noted.begun(0) == (0, 0, 0)
    assert noted.begun(3) == (2, 3, 3)
    assert noted.begun(5) == (2, 5, 4)
    assert noted.written == set()


def test_a_write_to_what_is_given_is_noted(fake):
    noted, x = note(), fake(torch.zeros(2))
    noted.record(torch.Tensor.mul_, (x, 2), {})
    noted.finish()
    assert noted.written == {0}
    assert noted.flaw == ""


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda note, x: note.record(torch.Tensor.t_, (x,), {}), "t_ changes what"),
        (lambda note, x: note.record(torch.add, (x, REAL), {}), "neither an argument"),
        (lambda note, x: note.record(torch.Tensor.data_ptr, (x,), {}), "asks for values"),
        (lambda note, x: note.record(torch.is_grad_enabled, (), {}), "state of torch"),
        (lambda note, x: note.record(torch.Tensor.apply, (x, print), {}), "takes a builtin"),
        (lambda note, x: note.record(torch.rand, (2,), {"generator": torch.Generator()}),
         "takes a Generator"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_flaw(fake, call, reason, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "apply", lambda x, _: x, raising=False)
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda _: 7)
    noted = note()
    try:
        call(noted, fake(torch.zeros(2)))
    finally:
        assert reason in noted.flaw
        assert noted.calls == []
    before = noted.flaw
    noted.record(torch.ones, (2,), {})  # is still done
    assert (noted.calls, noted.flaw) == ([], before)


def test_the_first_calls_of_another_note_are_taken_over(fake):
    noted, x, weight = note(), fake(torch.zeros(2)), fake(torch.zeros(2))
    made = noted.record(torch.add, (x, weight), {})
    noted.record(torch.mul, (made, made), {})
    other, y = note(), fake(torch.zeros(2))
    other.begin_as(noted, 1, [x, y], {0: made})
    other.record(torch.sub, (made, y), {})
    assert [call.function for call in other.calls] == [torch.add, torch.sub]
    assert other.calls[1].form[1][0] == (tuple, [("made", 0), ("given", 1)])
    assert other.calls[1].result == ("made", 1)


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "value",
    [(1, "a"), [1, 2], {"a": 1, "b": [2]}, slice(1, None, 2), Pair(1, 2), torch.Size([2, 3]),
     collections.OrderedDict(x=1)],
)  # fmt: skip
def test_a_container_is_built_of_its_parts_again(value):
    inner = parts_of(value)
    assert rebuild(type(value), inner) == value
    assert type(rebuild(type(value), inner)) is type(value)


def test_a_number_has_no_parts():
    assert parts_of(3) is None
    assert parts_of("text") is None
