"""ModelInputs: one set, names, and the set to export with; what the incumbent gets wrong."""

from __future__ import annotations

import logging
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from torchferry.errors import UsageError
from torchferry.observer import observe
from torchferry.observer.model_inputs import ModelInputs
from torchferry.values import make_dynamic_cache, string_type

D, AUTO = Dim.DYNAMIC, Dim.AUTO
Point = namedtuple("Point", "left right")


class Add(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x if y is None else x + y


class Everything(nn.Module):
    """Takes any structure; only its signature matters."""

    def forward(self, x: Any = None, y: Any = None, *, flag: Any = False, n: int = 1) -> Any:
        return x


def t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def guess(*sets: Any, **options: Any) -> Any:
    return ModelInputs(Everything(), sets).guess_dynamic_shapes(**options)


def symbolic(program: torch.export.ExportedProgram) -> list[list[bool]]:
    """For each input, which of its axes are symbolic."""
    values = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
    return [[isinstance(size, torch.SymInt) for size in v.shape] for v in values]


# One set, and names -----------------------------------------------------------------------------


def test_one_set_says_what_cannot_be_known(caplog: pytest.LogCaptureFixture) -> None:
    given = ModelInputs(Everything(), [{"x": t(2, 3), "flag": True}])
    with caplog.at_level(logging.WARNING, "torchferry"):
        assert given.guess_dynamic_shapes() == ((), {"x": {}, "flag": None})
    assert "Everything.forward: x is in one set only" in caplog.text
    assert given.unknown == ("x",)
    caplog.clear()
    assert given.guess_dynamic_shapes(auto=True) == ((), {"x": {0: AUTO, 1: AUTO}, "flag": None})
    assert given.guess_dynamic_shapes(auto="d_")[1]["x"] == {0: "d_x_dim_0", 1: "d_x_dim_1"}
    assert caplog.text == ""


def test_auto_leaves_what_is_known() -> None:
    assert guess({"x": t(2, 3)}, {"x": t(4, 3), "y": t(5)}, auto=True) == (
        (),
        {"x": {0: D}, "y": {0: AUTO}},
    )


def test_one_set_exports_with_auto() -> None:
    args, kwargs, shapes = ModelInputs(Add(), [(t(5, 6), t(1, 6))]).export_arguments(auto=True)
    program = torch.export.export(Add(), args, kwargs, dynamic_shapes=shapes)
    assert symbolic(program) == [[True, True], [False, True]]


def test_equal_sizes_have_one_name_and_sums_are_written_so() -> None:
    """There is no detection of relations there."""

    def decode(batch: int, sequence: int, past: int) -> dict[str, Any]:
        return {
            "input_ids": t(batch, sequence, dtype=torch.int64),
            "attention_mask": t(batch, past + sequence, dtype=torch.int64),
            "past_key_values": make_dynamic_cache([(t(batch, 1, past, 4), t(batch, 1, past, 4))]),
        }

    class Decoder(nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any, past_key_values: Any) -> Any: ...

    given = ModelInputs(Decoder(), [decode(2, 3, 30), decode(3, 5, 17), decode(4, 7, 9)])
    layer = {0: "batch_size", 2: "past_sequence_length"}
    assert given.guess_dynamic_shapes(auto="")[1] == {
        "input_ids": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "past_sequence_length + sequence_length"},
        "past_key_values": [[layer], [layer]],
    }
    named = given.guess_dynamic_shapes(auto="m_")[1]
    assert named["attention_mask"][1] == "m_past_sequence_length + m_sequence_length"


# The set to export with -------------------------------------------------------------------------


def test_the_best_set_is_no_prefill_and_has_no_size_below_two() -> None:
    """There the first call is taken, which after ``generate`` has an empty cache."""

    def call(batch: int, sequence: int, past: int | None) -> dict[str, Any]:
        cache = [] if past is None else [(t(batch, 1, past, 4), t(batch, 1, past, 4))]
        ids = torch.arange(batch * sequence).reshape(batch, sequence)
        return {"x": ids, "y": make_dynamic_cache(cache), "n": 7}

    given = ModelInputs(
        Everything(), [call(2, 9, None), call(2, 1, 9), call(2, 1, 10), call(3, 5, None)]
    )
    args, kwargs = given.best
    assert args == ()
    assert string_type(kwargs, with_shape=True, with_min_max=False) == (
        "dict(x:T7s2x5,y:DynamicCache(key_cache=#1[T1s2x1x9x4], value_cache=#1[T1s2x1x9x4]),n:int)"
    )
    assert kwargs["n"] == 7
    assert set(kwargs["x"].flatten().tolist()) <= {0, 1}  # values that were seen


def test_a_set_that_is_good_is_taken_as_it_is() -> None:
    first, second = (t(1, 6), t(1, 6)), (t(7, 8), t(7, 8))
    given = ModelInputs(Add(), [first, second])
    assert given.best[0][0] is given.inputs[1][0][0]
    assert torch.equal(given.best[0][0], second[0])


def test_observed_calls_are_sets() -> None:
    model = Add()
    with observe(model) as seen:
        model(t(2, 3), y=t(2, 3))
        model(t(4, 3), y=t(4, 3))
    given = ModelInputs(model, [(call.args, call.kwargs) for call in seen.calls])
    assert given.guess_dynamic_shapes() == (({0: D},), {"y": {0: D}})


# torch.onnx -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # torch.onnx warns of names that it finds twice
def test_names_serve_torch_onnx() -> None:
    given = ModelInputs(Add(), [{"x": t(n, 3), "y": t(n, 3)} for n in (2, 5)])
    args, kwargs, shapes = given.export_arguments(auto="")
    program = torch.onnx.export(
        Add().eval(), args, kwargs=kwargs, dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    assert program is not None
    found = {value.name: [str(d) for d in value.shape] for value in program.model.graph.inputs}
    assert found == {"x": ["batch_size", "3"], "y": ["batch_size", "3"]}


# In general -------------------------------------------------------------------------------------

sizes = st.lists(st.integers(0, 5), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.data(), sizes, st.booleans(), st.booleans())
def test_an_axis_is_dynamic_exactly_when_it_varies(
    data: st.DataObject, first: list[int], named: bool, other_way: bool
) -> None:
    second = data.draw(st.lists(st.integers(0, 5), min_size=len(first), max_size=len(first)))
    one: Any = {"x": [t(*first)]} if named else ([t(*first)],)
    two: Any = {"x": [t(*second)]} if named is not other_way else ([t(*second)],)
    args, kwargs = guess(one, two)
    (shape,) = (*args, *kwargs.values())
    expected = {i: D for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b}
    assert shape == [expected]


@pytest.mark.parametrize("sets", [None, {"x": torch.ones(2)}, torch.ones(2, 3), "x"], ids=str)
def test_what_is_no_list_of_sets(sets: Any) -> None:
    with pytest.raises(UsageError, match="takes a list of input sets, not"):
        ModelInputs(nn.ReLU(), sets)


@pytest.mark.parametrize("model", [None, nn.ReLU, "relu"])
def test_what_is_no_module(model: Any) -> None:
    with pytest.raises(UsageError, match="takes a module first, not"):
        ModelInputs(model, [(torch.ones(2),), (torch.ones(3),)])


def test_sets_are_kept_as_they_were_given() -> None:
    caches = [make_dynamic_cache([(t(1, 1, n, 4), t(1, 1, n, 4))]) for n in (3, 5)]
    x = t(2, 3)
    mi = ModelInputs(Everything(), [{"x": x, "y": caches[0]}, {"x": t(4, 3), "y": caches[1]}])
    x.fill_(7)
    for cache in caches:
        cache.update(t(1, 1, 9, 4), t(1, 1, 9, 4), 0)
    assert mi.inputs[0][1]["x"].max() == 1
    assert [kwargs["y"].get_seq_length() for _, kwargs in mi.inputs] == [3, 5]
    assert mi.best[1]["y"].get_seq_length() in (3, 5)


def test_an_argument_that_is_a_named_tuple_exports() -> None:
    class Pair(torch.nn.Module):
        def forward(self, pair: Any, *, also: Any) -> Any:
            return pair.left + 1, also["pair"].right * 2

    sets = [
        ((Point(t(n, 3), t(n)),), {"also": OrderedDict(pair=Point(t(n), t(n, 2)))}) for n in (2, 5)
    ]
    mi = ModelInputs(Pair(), sets)
    for args, kwargs, shapes in (mi.export_arguments(), _moved(mi)):
        program = torch.export.export(Pair(), args, kwargs, dynamic_shapes=shapes)
        pair, also = Point(t(4, 3), t(4)), OrderedDict(pair=Point(t(4), t(4, 2)))
        left, right = (
            program.module()(pair, also=also) if args else program.module()(pair=pair, also=also)
        )
        assert (left.shape, right.shape) == ((4, 3), (4, 2))


def _moved(mi: ModelInputs) -> Any:
    shapes = mi.guess_dynamic_shapes()
    args, kwargs, (_, for_kwargs) = mi.move_to_kwargs(*mi.inputs[1], shapes)
    return args, kwargs, for_kwargs
