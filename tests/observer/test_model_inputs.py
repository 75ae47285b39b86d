"""ModelInputs; tests named after what onnx-diagnostic's version gets wrong say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchferry.errors import UsageError
from torchferry.observer import observe
from torchferry.observer.keywords import explicit_keywords
from torchferry.observer.model_inputs import ModelInputs
from torchferry.values import flatten, make_dynamic_cache, string_type
from torchferry.zoo import build

D, AUTO = Dim.DYNAMIC, Dim.AUTO


class Add(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x if y is None else x + y


class Everything(nn.Module):
    """Takes any structure; only its signature matters."""

    def forward(self, x: Any = None, y: Any = None, *, flag: Any = False, n: int = 1) -> Any:
        return x


class Starred(nn.Module):
    def forward(self, a: torch.Tensor, *xs: torch.Tensor) -> torch.Tensor:
        return a + sum(x.sum() for x in xs)


def t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def guess(*sets: Any, model: nn.Module | None = None, **options: Any) -> Any:
    return ModelInputs(model or Everything(), sets).guess_dynamic_shapes(**options)


def input_shapes(program: torch.export.ExportedProgram) -> list[list[bool]]:
    """For each tensor input, which of its axes are symbolic."""
    names = set(program.graph_signature.user_inputs)
    values = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"
              and n.name in names]  # fmt: skip
    return [[isinstance(size, torch.SymInt) for size in v.shape] for v in values]


# The forms --------------------------------------------------------------------------------------


def test_positional_sets_export_with_the_first_of_the_pair() -> None:
    inputs = [(t(5, 6), t(1, 6)), (t(7, 8), t(1, 8))]
    shapes = guess(*inputs, model=Add())
    assert shapes == (({0: D, 1: D}, {1: D}), {})
    program = torch.export.export(Add(), inputs[0], dynamic_shapes=shapes[0])
    assert input_shapes(program) == [[True, True], [False, True]]


def test_named_sets_export_with_the_second_of_the_pair() -> None:
    inputs = [{"x": t(5, 6), "y": t(1, 6)}, {"x": t(7, 8), "y": t(1, 8)}]
    shapes = guess(*inputs, model=Add())
    assert shapes == ((), {"x": {0: D, 1: D}, "y": {1: D}})
    program = torch.export.export(Add(), (), inputs[0], dynamic_shapes=shapes[1])
    assert input_shapes(program) == [[True, True], [False, True]]


def test_mixed_sets_move_to_kwargs() -> None:
    given = ModelInputs(Add(), [((t(5, 6),), {"y": t(1, 6)}), ((t(7, 8),), {"y": t(1, 8)})])
    shapes = given.guess_dynamic_shapes()
    assert shapes == (({0: D, 1: D},), {"y": {1: D}})
    args, kwargs, moved = given.move_to_kwargs(*given.inputs[0], shapes)
    assert args == ()
    assert list(kwargs) == ["x", "y"]
    assert moved == ((), {"x": {0: D, 1: D}, "y": {1: D}})
    program = torch.export.export(Add(), args, kwargs, dynamic_shapes=moved[1])
    assert input_shapes(program) == [[True, True], [False, True]]


def test_export_arguments_fit_torch_however_the_sets_were_given() -> None:
    for sets in (
        [(t(5, 6), t(1, 6)), (t(7, 8), t(1, 8))],
        [((t(5, 6),), {"y": t(1, 6)}), {"x": t(7, 8), "y": t(1, 8)}],
        [((t(5, 6),), {"y": t(1, 6)}), (t(7, 8), t(1, 8))],
    ):
        args, kwargs, shapes = ModelInputs(Add(), sets).export_arguments()
        assert shapes == {"x": {0: D, 1: D}, "y": {1: D}}
        torch.export.export(Add(), args, kwargs, dynamic_shapes=shapes)


def test_an_argument_named_in_one_set_is_named_in_all() -> None:
    given = ModelInputs(Add(), [(t(2), t(2)), {"x": t(3), "y": t(3)}])
    assert given.guess_dynamic_shapes() == ((), {"x": {0: D}, "y": {0: D}})
    assert [list(kwargs) for _, kwargs in given.inputs] == [["x", "y"], ["x", "y"]]


def test_nothing_varies() -> None:
    assert guess((t(2, 3),), (t(2, 3),)) == (({},), {})


def test_a_scalar_tensor_has_no_axis() -> None:
    assert guess((t(),), (t(),)) == (({},), {})


def test_empty_sizes() -> None:
    """The incumbent takes an axis that is 0 in every set as dynamic."""
    assert guess((t(0, 3),), (t(0, 4),)) == (({1: D},), {})
    assert guess((t(0),), (t(2),)) == (({0: D},), {})


def test_nesting_is_that_of_the_value() -> None:
    def one(n: int) -> dict[str, Any]:
        return {"x": [t(n), (t(2, n), None)], "y": {"a": t(n, 3), "b": [], "c": 1}}

    assert guess(one(2), one(3)) == (
        (),
        {"x": [{0: D}, ({1: D}, None)], "y": {"a": {0: D}, "b": [], "c": None}},
    )


def test_a_cache_is_all_keys_then_all_values() -> None:
    def cache(batch: int, length: int) -> Any:
        return make_dynamic_cache([(t(batch, 4, length, 7), t(batch, 4, length, 7))] * 2)

    class Sum(nn.Module):
        def forward(self, cache: Any, z: torch.Tensor) -> torch.Tensor:
            return z + sum(layer.keys + layer.values for layer in cache.layers)

    inputs = [(cache(2, 3), t(1, 1, 1, 7)), (cache(3, 4), t(1, 1, 1, 7))]
    shapes = guess(*inputs, model=Sum())
    layer = {0: D, 2: D}
    assert shapes == (([[layer, layer], [layer, layer]], {}), {})
    program = torch.export.export(Sum(), inputs[0], dynamic_shapes=shapes[0])
    assert input_shapes(program) == [[True, False, True, False]] * 4 + [[False] * 4]


def test_another_method() -> None:
    class Encoder(nn.Module):
        def encode(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens

    given = ModelInputs(Encoder(), [{"tokens": t(2, 3)}, {"tokens": t(2, 4)}], "encode")
    assert given.guess_dynamic_shapes() == ((), {"tokens": {1: D}})
    with pytest.raises(UsageError, match="Encoder has no method 'encod'; did you mean 'encode'"):
        ModelInputs(Encoder(), [{"tokens": t(2, 3)}], "encod")


def test_positional_only_arguments_export_by_position() -> None:
    class Only(nn.Module):
        def forward(self, x: torch.Tensor, /, y: torch.Tensor) -> torch.Tensor:
            return x + y

    given = ModelInputs(Only(), [((t(2),), {"y": t(2)}), ((t(3),), {"y": t(3)})])
    assert given.guess_dynamic_shapes() == (({0: D},), {"y": {0: D}})
    args, kwargs, shapes = given.export_arguments()
    assert input_shapes(torch.export.export(Only(), args, kwargs, dynamic_shapes=shapes)) == [
        [True],
        [True],
    ]
    with pytest.raises(UsageError, match="x can be given by position only"):
        given.move_to_kwargs(*given.inputs[0], given.guess_dynamic_shapes())


def test_star_arguments_are_one_tuple_and_cannot_be_named() -> None:
    given = ModelInputs(Starred(), [(t(2, 3), t(2), t(4)), (t(5, 3), t(5), t(4))])
    shapes = given.guess_dynamic_shapes()
    assert shapes == (({0: D}, ({0: D}, {})), {})
    torch.export.export(Starred(), given.inputs[0][0], dynamic_shapes=shapes[0])
    args, kwargs, by_name = given.export_arguments()
    torch.export.export(Starred(), args, kwargs, dynamic_shapes=by_name)
    with pytest.raises(UsageError, match=r"Starred\.forward: \*xs can be given by position only"):
        given.move_to_kwargs(*given.inputs[0], shapes)


def test_what_forward_takes_as_kwargs() -> None:
    class Open(nn.Module):
        def forward(self, x: torch.Tensor, **more: Any) -> torch.Tensor:
            return x + more["bias"] * more["factor"]

    model = Open()
    given = ModelInputs(model, [{"bias": t(n), "x": t(n), "factor": 2} for n in (2, 3)])
    assert given.guess_dynamic_shapes() == ((), {"x": {0: D}, "bias": {0: D}, "factor": None})
    assert given.keywords == ("bias", "factor")
    assert given.constants == {"factor": 2}
    args, kwargs, shapes = given.export_arguments()
    with explicit_keywords(model, kwargs):
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    assert program.module()(**{**kwargs, "x": t(5), "bias": t(5)}).tolist() == [3.0] * 5


# Absent and None --------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["None", "left out", "named None"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_tensor_that_one_set_lacks(absent: str, order: int) -> None:
    """``(x, then None)`` is an AttributeError there, ``(None, then x)`` a shape of None."""
    lacking: Any = {
        "None": (t(2), None),
        "left out": (t(2),),
        "named None": {"x": t(2), "y": None},
    }
    sets = [(t(3), t(3)), lacking[absent], (t(4), t(4))][::order]
    given = ModelInputs(Add(), sets)
    for_args, for_kwargs = given.guess_dynamic_shapes()
    shapes = {**dict(zip("xy", for_args, strict=False)), **for_kwargs}
    assert shapes == {"x": {0: D}, "y": {0: D}}
    assert string_type(given.optional, with_shape=True) == "dict(y:T1s0)"
    args, kwargs, by_name = given.export_arguments()
    assert by_name == shapes
    torch.export.export(Add(), args, kwargs, dynamic_shapes=by_name)


def test_a_missing_positional_argument_is_allowed() -> None:
    """There only named arguments may be missing."""
    assert guess((t(2), t(2)), (t(3),), (t(5), t(5))) == (({0: D}, {0: D}), {})


def test_none_everywhere() -> None:
    """An AssertionError there."""
    assert guess((t(2), None), (t(3), None)) == (({0: D}, None), {})
    given = ModelInputs(Add(), [(t(2), None), (t(3), None)])
    assert given.optional == {}
    torch.export.export(Add(), *given.inputs[0], dynamic_shapes=given.export_arguments()[2])


def test_move_to_kwargs_gives_only_the_shapes_of_what_is_there() -> None:
    given = ModelInputs(Add(), [(t(3), t(3)), (t(2), None), {"x": t(4), "y": t(4)}])
    shapes = given.guess_dynamic_shapes()
    _, kwargs, moved = given.move_to_kwargs(*given.inputs[1], shapes)
    assert moved == ((), {"x": {0: D}, "y": None})
    torch.export.export(Add(), (), kwargs, dynamic_shapes=moved[1])
    _, kwargs, moved = given.move_to_kwargs((t(2),), {}, shapes)
    assert moved == ((), {"x": {0: D}})
    torch.export.export(Add(), (), kwargs, dynamic_shapes=moved[1])


def test_move_to_kwargs_looks_into_containers_for_none() -> None:
    given = ModelInputs(Everything(), [{"x": [t(2), t(2)]}, {"x": [t(3), None]}])
    shapes = given.guess_dynamic_shapes()
    assert shapes == ((), {"x": [{0: D}, {}]})
    assert given.move_to_kwargs(*given.inputs[1], shapes)[2][1] == {"x": [{0: D}, None]}


def test_move_to_kwargs_refuses_what_it_cannot_place() -> None:
    given = ModelInputs(Add(), [(t(2), t(2)), (t(3), t(3))])
    with pytest.raises(UsageError, match="dynamic_shapes say nothing of y"):
        given.move_to_kwargs((t(2), t(2)), {}, (({0: D},), {}))
    with pytest.raises(UsageError, match="takes 2 positional arguments, and 3 were given"):
        given.move_to_kwargs((t(2), t(2), t(2)), {}, ((), {}))


def test_an_empty_cache_stands_for_an_absent_one() -> None:
    def call(batch: int, length: int) -> dict[str, Any]:
        pair = (t(batch, 2, length, 4), t(batch, 2, length, 4))
        return {"x": t(batch, 1), "y": make_dynamic_cache([pair] * 2)}

    for lacking in ({"x": t(5, 9)}, {"x": t(5, 9), "y": make_dynamic_cache([])}):
        given = ModelInputs(Everything(), [lacking, call(2, 7), call(3, 8)])
        layer = {0: D, 2: D}
        assert given.guess_dynamic_shapes()[1]["y"] == [[layer] * 2, [layer] * 2]
        assert string_type(given.optional, with_shape=True) == (
            "dict(y:DynamicCache(key_cache=#2[T1s5x2x0x4,T1s5x2x0x4], "
            "value_cache=#2[T1s5x2x0x4,T1s5x2x0x4]))"
        )


@pytest.mark.filterwarnings("ignore")
def test_zeros_stand_for_the_states_of_mamba() -> None:
    made = build("mamba")
    model = made.model.eval()
    with observe(model) as seen:
        for batch, length in ((2, 7), (3, 5)):
            ids = torch.randint(3, 50, (batch, length))
            model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    given = ModelInputs(model, [(c.args, c.kwargs) for c in seen.calls])
    ((name, empty),) = given.optional.items()
    states = [leaf for _, leaf in flatten(empty)[0] if isinstance(leaf, torch.Tensor)]
    assert states
    assert all(len(state) == 2 and not state.any() for state in states)
    ids = torch.randint(3, 50, (2, 6))
    with torch.no_grad():
        assert torch.equal(model(ids).logits, model(ids, **{name: empty}).logits)


def test_nothing_can_stand_for_what_is_not_known_to_vary() -> None:
    given = ModelInputs(Everything(), [{"x": t(2)}, {"x": t(3), "y": t(4)}])
    assert given.optional == {"y": None}
    assert given.unknown == ("y",)


def test_a_nested_argument_that_no_set_has_in_full_is_refused() -> None:
    given = ModelInputs(Everything(), [{"x": {"a": t(2)}}, {"x": {"b": t(3)}}])
    with pytest.raises(UsageError, match=r"argument x: no set has all of it.*x\.b"):
        given.guess_dynamic_shapes()


# Constants and integers -------------------------------------------------------------------------


def test_constants_have_no_shape() -> None:
    given = ModelInputs(Everything(), [{"x": t(n), "flag": True, "n": 3} for n in (2, 4)])
    assert given.guess_dynamic_shapes() == ((), {"x": {0: D}, "flag": None, "n": None})
    assert given.constants == {"flag": True, "n": 3}


def test_integers_that_vary_are_dynamic() -> None:
    """There integers are never dynamic."""

    class Head(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x[:, :n] * n

    given = ModelInputs(Head(), [(t(2, 9), 3), (t(4, 9), 5)])
    assert given.guess_dynamic_shapes() == (({0: D}, D), {})
    assert given.guess_dynamic_shapes(auto="")[0] == ({0: "batch_size"}, "n")
    assert given.integers == {"n": (3, 5)}
    args, kwargs, shapes = given.export_arguments()
    assert args[1] in (3, 5)
    program = torch.export.export(Head(), args, kwargs, dynamic_shapes=shapes)
    assert program.module()(t(7, 9), 8).shape == (7, 8)
    assert torch.equal(program.module()(t(7, 9), 8), torch.full((7, 8), 8.0))


def test_an_integer_that_one_set_leaves_to_the_default_varies() -> None:
    class Head(nn.Module):
        def forward(self, x: torch.Tensor, n: int = 2, scale: float = 1.0) -> torch.Tensor:
            return x[:, :n] * scale

    given = ModelInputs(Head(), [(t(3, 9),), (t(4, 9), 5)])
    assert given.integers == {"n": (2, 5)}
    assert given.inputs[0][1]["n"] == 2
    assert given.guess_dynamic_shapes() == (({0: D},), {"n": D})
    args, kwargs, shapes = given.export_arguments()
    program = torch.export.export(Head(), args, kwargs, dynamic_shapes=shapes)
    assert program.module()(t(7, 9), n=8).shape == (7, 8)
    with pytest.raises(
        UsageError, match=r"argument scale is 1\.0 in one call and 2\.0 in another"
    ):
        ModelInputs(Head(), [(t(3, 9),), (t(4, 9), 2, 2.0)])


def test_the_best_set_keeps_its_integers_unless_a_dimension_is_as_long() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, n: int, axis: int) -> torch.Tensor:
            return x[:n].sum(axis)

    given = ModelInputs(Model(), [(t(1, 9), 1, 0), (t(1, 8), 1, 1)])
    assert given.best[0][1:] in ((1, 0), (1, 1))
    sets = [(t(0, 9), 0, 0), (t(1, 8), 1, 1), (t(1, 7), 1, 0)]
    x, n, axis = ModelInputs(Model(), sets).best[0]
    assert (len(x), n) == (2, 2)
    assert axis in (0, 1)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([(t(2),), (t(2, 3),)], "argument x changes its rank between calls: 1, 2"),
        ([(t(2),), (t(3, dtype=torch.int64),)], "argument x changes its dtype"),
        ([{"x": t(2), "flag": True}, {"x": t(3), "flag": False}], "argument flag is True"),
        ([{"x": t(2), "flag": "a"}, {"x": t(3), "flag": "b"}], "argument flag is 'a'"),
        ([(t(2), 3), (t(3), t(1))], "argument y is 3 in one call and a tensor in another"),
        ([{"x": {"a": t(2)}}, {"x": {"a": t(2, 2)}}], r"argument x\.a changes its rank"),
        ([{"z": t(2)}], "does not fit Everything.forward"),
        ([[t(2)]], "an input set is #1"),
        ([], "no input set of Everything.forward"),
    ],
)
def test_conflicts_name_the_argument(sets: list[Any], said: str) -> None:
    """A change of rank is an AssertionError there."""
    with pytest.raises(UsageError, match=said):
        ModelInputs(Everything(), sets)


def test_sets_of_one_size_are_said_to_be_so(caplog):
    sets = [(torch.ones(2, 3),), (torch.zeros(2, 3),)]
    inputs = ModelInputs(torch.nn.ReLU(), sets)
    assert inputs.unvaried
    assert inputs.guess_dynamic_shapes() == (({},), {})
    (record,) = caplog.records
    assert "all 2 sets have the same sizes" in record.getMessage()
    caplog.clear()
    assert not ModelInputs(torch.nn.ReLU(), [*sets, (torch.ones(4, 3),)]).unvaried
    assert not ModelInputs(torch.nn.ReLU(), sets[:1]).unvaried
    assert not caplog.records


def test_sets_that_differ_in_an_integer_vary():
    class Head(torch.nn.Module):
        def forward(self, x, n):
            return x[:, :n]

    assert not ModelInputs(Head(), [(torch.ones(2, 3), 1), (torch.ones(2, 3), 2)]).unvaried
