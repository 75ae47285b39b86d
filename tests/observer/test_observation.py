import pytest
import torch

from torchferry.dims import Dim
from torchferry.errors import UsageError
from torchferry.observer import Call, Observation
from torchferry.values import make_dynamic_cache
from versions import cache_in


class Model(torch.nn.Module):
    def forward(self, x, mask=None, *, scale=1.0, cache=None, **extra):
        return x


class Variadic(torch.nn.Module):
    def forward(self, a, /, b, c=None, *rest, d=None):
        return a


class Positional(torch.nn.Module):
    def forward(self, a, b=None, /, c=None):
        return a


def observed(model, *sets):
    return Observation.from_inputs(model, sets)


def names(seen):
    return {a.name: [str(axis.size) for axis in a.axes] for a in seen.arguments}


def test_an_argument_is_known_by_its_name_however_it_is_passed():
    x, mask = torch.zeros(2, 3), torch.zeros(2)
    seen = observed(
        Model(), ((x, mask), {}), ((torch.zeros(4, 3),), {"mask": torch.zeros(4)}),
        ((), {"mask": torch.zeros(5), "x": torch.zeros(5, 3)}),
    )  # fmt: skip
    assert names(seen) == {"x": ["batch_size", "3"], "mask": ["batch_size"]}
    assert list(seen.normalized(seen.calls[2])[1]) == ["x", "mask"]


def test_a_none_that_is_the_default_is_dropped_and_another_is_kept():
    seen = observed(Model(), ((), {}))
    call = Call((torch.zeros(1), None), {"scale": None, "cache": None, "unused": None})
    args, kwargs = seen.normalized(call)
    assert args == ()
    assert list(kwargs) == ["x", "scale"]
    assert kwargs["scale"] is None
    required = Observation.from_inputs(Variadic(), [])
    assert required.normalized(Call((torch.zeros(1), None), {}))[0][1] is None


def test_what_stands_before_star_args_stays_positional():
    a, b, c, d, e = (torch.zeros(n, 2) for n in range(1, 6))
    seen = observed(Variadic(), ((a, b, c, d), {"d": e}), ((a, b), {}))
    args, kwargs = seen.normalized(seen.calls[0])
    assert [t.shape[0] for t in args] == [1, 2, 3, 4]
    assert list(kwargs) == ["d"]
    assert [t.shape[0] for t in seen.normalized(seen.calls[1])[0]] == [1, 2]


def test_positional_only_arguments_stay_positional():
    seen = observed(Positional(), ((torch.zeros(1), torch.zeros(2)), {"c": torch.zeros(3)}))
    args, kwargs = seen.normalized(seen.calls[0])
    assert [t.shape[0] for t in args] == [1, 2]
    assert list(kwargs) == ["c"]
    assert list(names(seen)) == ["args.0", "args.1", "c"]


def test_what_goes_into_kwargs_is_named():
    seen = observed(
        Model(),
        ((torch.zeros(2),), {"b": torch.zeros(2, 3), "flag": True}),
        ((torch.zeros(4),), {"flag": True, "b": torch.zeros(4, 5)}),
    )
    assert names(seen) == {"x": ["batch_size"], "b": ["batch_size", "b_dim_1"], "flag": []}


def test_arguments_that_do_not_fit_show_the_signature_and_what_was_given():
    seen = observed(Positional(), ((), {"z": torch.zeros(2, 3)}))
    with pytest.raises(
        UsageError, match=r"Positional.forward\(a, b=None, /, c=None\) cannot take"
    ):
        _ = seen.arguments
    with pytest.raises(UsageError, match="z:T1s2x3"):
        seen.normalized(seen.calls[0])


def test_no_call_is_an_error_that_says_what_to_do():
    with pytest.raises(UsageError, match="no call of Model was recorded: run the model inside"):
        _ = observed(Model()).dynamic_names


def test_add_forgets_what_was_inferred():
    seen = observed(Model(), ((torch.zeros(2),), {}))
    assert seen.dynamic_names == ()
    seen.add(Call((torch.zeros(3),), {}))
    assert seen.dynamic_names == ("batch_size",)


def test_a_size_given_wins_over_what_is_inferred():
    seen = observed(Model(), ((torch.zeros(2, 3),), {}), ((torch.zeros(2, 4),), {}))
    seen.named = {("x", 0): Dim.of("rows"), ("x", 1): 3}
    (x,) = seen.arguments
    assert [str(axis.size) for axis in x.axes] == ["rows", "3"]
    assert x.axes[0].reason == "given"


def test_the_best_call_has_most_tensors_and_no_small_sizes():
    small = ((torch.zeros(1, 4),), {"mask": torch.zeros(1)})
    equal = ((torch.zeros(3, 3),), {"mask": torch.zeros(3)})
    good = ((torch.zeros(3, 5),), {"mask": torch.zeros(3)})
    bare = ((torch.zeros(7, 9),), {})
    seen = observed(Model(), small, equal, good, bare)
    assert seen.best is seen.calls[2]


def test_sizes_of_a_call_leave_out_what_is_absent_and_count_an_empty_cache_as_0():
    def cache(length):
        return make_dynamic_cache([(torch.zeros(2, 1, length, 4),) * 2])

    seen = observed(
        Model(),
        ((torch.zeros(2, 6),), {"cache": make_dynamic_cache([])}),
        ((torch.zeros(2, 7),), {"cache": cache(5), "mask": torch.zeros(3)}),
        ((torch.zeros(2, 9),), {"cache": cache(8), "mask": torch.zeros(4)}),
    )
    assert seen.sizes_of(seen.calls[0]) == {"x_dim_1": 6, "past_sequence_length": 0}
    assert seen.sizes_of(seen.calls[1]) == {
        "x_dim_1": 7, "batch_size": 3, "past_sequence_length": 5,
    }  # fmt: skip
    assert [a.cached for a in seen.arguments] == [False, False, True, True]


def test_inputs_are_made_at_other_sizes_by_evaluating_the_expressions():
    seen = observed(
        Model(),
        ((torch.zeros(2, 3),), {"mask": torch.zeros(5)}),
        ((torch.zeros(4, 7),), {"mask": torch.zeros(11)}),
        ((torch.zeros(5, 6),), {"mask": torch.zeros(11)}),
    )
    assert names(seen)["mask"] == ["batch_size + x_dim_1"]
    args, kwargs = seen.inputs_at({"batch_size": 1, "x_dim_1": 8})
    assert args == ()
    assert kwargs["x"].shape == (1, 8)
    assert kwargs["mask"].shape == (9,)


def test_inputs_made_share_nothing_with_those_recorded():
    x = torch.ones(2, 3)
    cache = make_dynamic_cache([(torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4))])
    seen = observed(Model(), ((x,), {"cache": cache}), ((torch.ones(1, 3),), {"cache": cache}))
    _, kwargs = seen.inputs_at(seen.sizes_of(seen.best))
    kwargs["x"].zero_()
    cache_in(kwargs).layers[0].keys.zero_()
    assert (x == 1).all()
    assert (cache.layers[0].keys == 1).all()


def test_inputs_need_the_sizes_of_what_the_best_call_has():
    seen = observed(
        Model(),
        ((torch.zeros(2, 3),), {"a": torch.zeros(8, 9)}),
        ((torch.zeros(3, 4),), {"a": torch.zeros(8, 7)}),
        ((torch.zeros(6, 5),), {"b": torch.zeros(8, 5)}),
        ((torch.zeros(7, 9),), {"b": torch.zeros(8, 4)}),
    )
    assert "b" not in seen.best.kwargs
    assert "b_dim_1" in seen.dynamic_names
    _, kwargs = seen.inputs_at(seen.sizes_of(seen.best))
    assert sorted(kwargs) == ["a", "x"]
    with pytest.raises(UsageError, match="no size given for a_dim_1"):
        seen.inputs_at({"batch_size": 2, "x_dim_1": 2})


def test_map_axes_speaks_of_the_dynamic_axes_of_tensors():
    seen = observed(
        Model(), ((torch.zeros(2, 3),), {"flag": 1}), ((torch.zeros(4, 3),), {"flag": 1})
    )
    assert seen.map_axes(lambda argument, axis: (argument.name, axis.index)) == {
        ("x",): {0: ("x", 0)}
    }


class Head(torch.nn.Module):
    def forward(self, x, n, k=2):
        return x[:, :n] * k


def test_an_integer_that_varies_is_a_size():
    seen = observed(Head(), ((torch.zeros(2, 9), 3), {}), ((torch.zeros(4, 9), 5), {}))
    assert seen.dynamic_names == ("batch_size", "n")
    assert [seen.sizes_of(call) for call in seen.calls] == [
        {"batch_size": 2, "n": 3}, {"batch_size": 4, "n": 5},
    ]  # fmt: skip
    _, kwargs = seen.inputs_at({"batch_size": 6, "n": 7})
    assert (kwargs["x"].shape, kwargs["n"]) == ((6, 9), 7)
    sizes = seen.map_sizes(lambda argument, axis: (argument.name, axis.index))
    assert sizes == {("x",): {0: ("x", 0)}, ("n",): ("n", -1)}
    with pytest.raises(UsageError, match=r"argument n is an integer that varies \(3, 5\)"):
        seen.map_axes(lambda *_: 1)


def test_what_a_call_leaves_to_the_default_is_the_default():
    x = torch.zeros(2, 9)
    seen = observed(Head(), ((x, 3), {}), ((x, 3, 4), {}))
    assert [list(seen.normalized(call)[1].items())[1:] for call in seen.calls] == [
        [("n", 3), ("k", 2)], [("n", 3), ("k", 4)],
    ]  # fmt: skip
    assert seen.dynamic_names == ("k",)
    seen = observed(Head(), ((x, 3), {}))
    assert "k" not in seen.normalized(seen.calls[0])[1]
    seen.add(Call((x,), {"k": 1, "n": 3}))
    assert seen.dynamic_names == ("k",)


def test_a_call_prints_its_arguments():
    assert str(Call((torch.zeros(2, 3),), {"flag": True})) == "((T1s2x3,),dict(flag:bool))"


def test_a_repr_is_short():
    big = torch.randn(100, 50)
    seen = Observation.from_inputs(torch.nn.ReLU(), [((big[:n],), {}) for n in (2, 3, 4, 5, 6)])
    assert repr(seen).splitlines() == [
        "Observation(ReLU: 5 calls)",
        "  Call(((T1s2x50,),{}) -> None)",
        "  Call(((T1s3x50,),{}) -> None)",
        "  Call(((T1s4x50,),{}) -> None)",
        "  … 2 more",
    ]
    assert repr(Observation.from_inputs(torch.nn.ReLU(), [((big,), {})])).startswith(
        "Observation(ReLU: 1 call)\n"
    )


def test_calls_of_one_size_are_said_to_be_so():
    def seen(*sizes):
        sets = [((torch.ones(n, 3),), {}) for n in sizes]
        return Observation.from_inputs(torch.nn.ReLU(), sets)

    assert seen(2, 2).unvaried
    assert not seen(2, 3).unvaried
    assert not seen(2).unvaried
    assert not Observation.from_inputs(torch.nn.ReLU(), [((3,), {}), ((3,), {})]).unvaried


def test_sets_are_taken_in_every_form_and_kept_as_they_are():
    x = torch.zeros(2, 3)
    seen = observed(Model(), (x,), {"x": torch.zeros(4, 3)}, ((torch.zeros(5, 3),), {}))
    x.fill_(1)
    assert [(len(call.args), list(call.kwargs)) for call in seen.calls] == [
        (1, []), (0, ["x"]), (1, []),
    ]  # fmt: skip
    assert not seen.calls[0].args[0].any()
    assert names(seen) == {"x": ["batch_size", "3"]}
    with pytest.raises(UsageError, match="an input set is"):
        observed(Model(), [x])
    with pytest.raises(UsageError, match="an input set is"):
        observed(Model(), x)


def test_a_cache_that_grows_afterwards_changes_nothing():
    caches = [make_dynamic_cache([(torch.ones(1, 1, n, 4),) * 2]) for n in (3, 5)]
    seen = observed(Model(), *[((torch.zeros(2, 3),), {"cache": cache}) for cache in caches])
    for cache in caches:
        cache.update(torch.ones(1, 1, 9, 4), torch.ones(1, 1, 9, 4), 0)
    assert [cache_in(call.kwargs).get_seq_length() for call in seen.calls] == [3, 5]


def test_a_constant_that_another_call_leaves_at_none_is_a_conflict():
    class Flagged(torch.nn.Module):
        def forward(self, x, flag=None):
            return x + 1 if flag else x

    seen = observed(Flagged(), ((torch.zeros(2),), {"flag": True}), ((torch.zeros(3),), {}))
    with pytest.raises(UsageError, match="flag of Flagged is True in one call and None in anothe"):
        assert seen.arguments


@pytest.mark.parametrize("size", [2.5, "3", None])
def test_sizes_that_are_no_integers_are_refused(size):
    seen = observed(Model(), ((torch.zeros(2, 3),), {}), ((torch.zeros(4, 3),), {}))
    with pytest.raises(UsageError, match="a size is an integer, and inputs_at was given"):
        seen.inputs_at({"batch_size": size})


def test_sizes_that_no_dimension_can_have_are_refused():
    seen = observed(Model(), ((torch.zeros(2, 3),), {}), ((torch.zeros(4, 3),), {}))
    with pytest.raises(UsageError, match=r"no x has shape \[-1, 3\], as batch_size=-1 asks"):
        seen.inputs_at({"batch_size": -1})
    assert seen.inputs_at({"batch_size": 0})[1]["x"].shape == (0, 3)


def test_a_cache_given_under_both_names_is_one_argument():
    class Decoder(torch.nn.Module):
        def forward(self, x, cache=None, **kwargs):
            return x

    x, sets = torch.ones(2), [{"cache": torch.ones(2)}, {"past_key_values": torch.ones(3)}]
    seen = observed(Decoder(), *[{"x": x, **one} for one in sets])
    assert [argument.path for argument in seen.arguments] == [("x",), ("cache",)]
    assert cache_in(seen.normalized(seen.calls[1])[1]).shape == (3,)
    alone = observed(Decoder(), *[{"x": x, "past_key_values": torch.ones(n)} for n in (2, 3)])
    assert alone.arguments[1].path == ("past_key_values",)
