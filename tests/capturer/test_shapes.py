import torch

from torchferry.capturer import export_arguments
from torchferry.observer import Observation
from torchferry.values import make_dynamic_cache


class Model(torch.nn.Module):
    def forward(self, x, options, *rest, flag=True, past_key_values=None, **kw):
        return x


class Renamed(torch.nn.Module):
    def forward(self, x, cache=None, **kw):
        return x + kw["y"]


def cache(length):
    return make_dynamic_cache([(torch.zeros(2, 1, length, 4), torch.zeros(2, 1, length, 4))])


def given(n):
    return (
        (torch.zeros(n, 3), {"a": [torch.zeros(n), 5], "b": torch.zeros(4)}, torch.zeros(n + 9)),
        {"flag": False, "past_key_values": cache(3 * n + 1), "extra": torch.zeros(n, n + 1)},
    )


def test_shapes_are_nested_as_the_arguments_are():
    model = Model()
    seen = Observation.from_inputs(model, [given(3), given(5)])
    args, kwargs, shapes = export_arguments(model, seen, "dynamic")
    assert [type(a) for a in args] == [torch.Tensor, dict, torch.Tensor]
    assert list(kwargs) == ["flag", "past_key_values", "extra"]
    key = {2: "dynamic"}
    assert shapes == {
        "x": {0: "dynamic"},
        "options": {"a": [{0: "dynamic"}, None], "b": {}},
        "rest": ({0: "dynamic"},),
        "flag": None,
        "past_key_values": [[key], [key]],
        "kw": {"extra": {0: "dynamic", 1: "dynamic"}},
    }


def test_a_cache_goes_by_the_name_forward_has_for_it():
    model = Renamed()
    sets = [
        ((torch.zeros(2),), {"past_key_values": cache(n), "y": torch.zeros(2)}) for n in (3, 4)
    ]
    seen = Observation.from_inputs(model, sets)
    _, kwargs, shapes = export_arguments(model, seen, 1)
    assert "past_key_values" not in kwargs
    assert shapes["cache"] == [[{2: 1}], [{2: 1}]]


def test_sizes_of_0_and_1_are_enlarged_and_differ():
    sets = [((torch.zeros(a, b, c),), {}) for a, b, c in ((1, 2, 0), (1, 3, 0), (4, 3, 1))]
    seen = Observation.from_inputs(torch.nn.Identity(), sets)
    (x,) = export_arguments(torch.nn.Identity(), seen, 1)[1].values()
    assert seen.best is seen.calls[2]
    assert x.shape == (4, 3, 2)
    seen.calls.pop()
    seen = Observation.from_inputs(torch.nn.Identity(), [*sets[:2], ((torch.zeros(0, 1, 0),), {})])
    (x,) = export_arguments(torch.nn.Identity(), seen, 1)[1].values()
    assert x.shape == (3, 2, 0)
    (x,) = export_arguments(torch.nn.Identity(), seen, 1, as_seen=True)[1].values()
    assert x.shape == (1, 2, 0)
