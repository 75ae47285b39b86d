from collections import OrderedDict, deque, namedtuple

import pytest
import torch
from torch import nn

from torchferry.capturer.state.places import (
    ABSENT,
    Place,
    exchanged,
    find_places,
    owners_of,
    read_place,
    state_kept,
)
from torchferry.errors import UsageError

Pair = namedtuple("Pair", "left right")


class Box:
    def __init__(self, content):
        self.content = content


class Holds(nn.Module):
    count = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("first", torch.zeros(1))
        self.register_buffer("second", torch.ones(1))
        self.h = torch.zeros(2)
        self.pair = Pair(torch.zeros(3), [1, torch.ones(3)])
        self.table = OrderedDict(a=(torch.zeros(4), 5))
        self.box = Box(deque([self.h]))


def by_name(model):
    return {str(place): value for place, value in find_places(model).items()}


def test_every_place_is_found():
    model = nn.Sequential(Holds())
    found = by_name(model)
    assert {*found} >= {
        "0.first", "0.second", "0.h", "0.pair.0", "0.pair.1.0", "0.pair.1.1", "0.table.a.0",
        "0.table.a.1", "0.box.content.0", "0.count",
    }  # fmt: skip
    assert not any(name.startswith("0.linear.weight") for name in found)
    assert found["0.box.content.0"] is found["0.h"] is model[0].h
    for place, value in find_places(model).items():
        assert read_place(model, place) is value


def test_what_is_not_there_is_absent():
    model = Holds()
    for place in (Place("", "none"), Place("", "pair", (7,)), Place("", "box", ("other",))):
        assert read_place(model, place) is ABSENT


def test_values_are_exchanged_and_come_back():
    model = Holds()
    before, pair, box = by_name(model), model.pair, model.box
    new = {
        place: torch.full((1,), 9.0)
        for place in find_places(model)
        if str(place) in ("first", "h", "pair.1.1", "table.a.0", "box.content.0")
    }
    new[Place("", "table", ("a", 1))] = 6
    new[Place("", "count")] = 3
    with exchanged(model, new):
        for place, value in new.items():
            assert read_place(model, place) is value
        assert model.first.item() == 9
        assert model.table["a"][1] == 6
        assert isinstance(model.pair, Pair)
        model.pair[1].append(4)  # a copy, as all that holds state
        model.box.content.clear()
        model.first += 1
        model.count += 1
        model.other = 1  # holds no state, and stays
    after = by_name(model)
    assert after.pop("other") == 1
    assert after == before
    assert (model.pair, model.box) == (pair, box)
    assert list(model.state_dict())[:2] == ["first", "second"]
    assert "count" not in vars(model)


def test_a_buffer_stays_one_unless_it_is_traced():
    model = Holds()
    new = {Place("", "first"): torch.ones(1)}
    with exchanged(model, new):
        assert model.first is dict(model.named_buffers())["first"]
        model.register_buffer("first", torch.full((1,), 3.0))
        assert read_place(model, Place("", "first")).item() == 3
    with exchanged(model, new, traced=True):
        assert "first" not in dict(model.named_buffers())
        model.first += 1
    assert model.first.item() == 0
    assert [*dict(model.named_buffers())] == ["first", "second"]


def test_one_object_in_two_places_stays_one():
    model = nn.Module()
    model.a = [torch.zeros(1)]
    model.b = {"same": model.a}
    with exchanged(model, dict.fromkeys(find_places(model), torch.ones(1))):
        assert model.a is model.b["same"]


def test_what_cannot_be_copied_is_named():
    class Stubborn(Box):
        def __deepcopy__(self, memo):
            raise TypeError("not me")

    model = nn.Module()
    model.cache = Stubborn(torch.zeros(1))
    (place,) = find_places(model)
    block = exchanged(model, {place: torch.ones(1)})
    with pytest.raises(UsageError, match=r"self\.cache .* cannot be copied \(TypeError: not me"):
        block.__enter__()


def test_a_model_runs_on_copies():
    model = Holds()
    values = {name: value.clone() for name, value in model.state_dict().items()}
    with state_kept(model):
        model.first += 1
        model.h.add_(1)
        model.pair[1].append(3)
    assert len(model.pair[1]) == 2
    assert not model.h.any()
    for name, value in model.state_dict().items():
        assert torch.equal(value, values[name])


def test_owners_are_buffers_and_attributes():
    names = {name for _, name in owners_of(Holds())}
    assert {"first", "h", "pair", "table", "box", "count"} <= names
    assert not names & {"weight", "training", "_buffers", "linear"}
