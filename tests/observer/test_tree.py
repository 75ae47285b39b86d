from collections import OrderedDict, namedtuple

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.observer.tree import (
    leaves_of,
    named_path,
    preallocated_caches,
    program_inputs,
    replace_leaves,
)
from torchferry.values import make_dynamic_cache, make_static_cache

Point = namedtuple("Point", "left right")


class Nested(torch.nn.Module):
    def forward(self, x, *more, options, flag=True, unused=None):
        total = x + more[0] + options["a"][0] + options["b"].left
        return total * 2 if flag else total


def cache():
    return make_dynamic_cache([(torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 4))])


def test_leaves_have_plain_paths_and_none_is_left_out():
    arguments = ((1, None, [2]), {"d": {"k": 3, 5: 4}, "p": Point(6, 7), "o": OrderedDict(z=8)})
    assert leaves_of(*arguments) == {
        (0,): 1, (2, 0): 2, ("d", "k"): 3, ("d", 5): 4, ("p", "left"): 6, ("p", "right"): 7,
        ("o", "z"): 8,
    }  # fmt: skip


def test_keys_that_read_alike_are_two_paths():
    leaves = leaves_of((), {"d": {1.5: 1, "1.5": 2, (0, "a"): 3, True: 4}})
    assert leaves == {
        ("d", "[1.5]"): 1, ("d", "1.5"): 2, ("d", "[(0, 'a')]"): 3, ("d", 1): 4,
    }  # fmt: skip


def test_a_cache_is_taken_apart_and_an_empty_one_has_no_leaf():
    assert list(leaves_of((), {"past_key_values": cache()})) == [
        ("past_key_values", "key_cache", 0), ("past_key_values", "value_cache", 0),
    ]  # fmt: skip
    assert leaves_of((), {"past_key_values": make_dynamic_cache([])}) == {}


def test_replacing_leaves_rebuilds_the_nesting():
    args, kwargs = replace_leaves(
        (torch.zeros(2),), {"c": cache(), "p": Point(1, 2)}, change=lambda path, _: str(path[-1])
    )
    assert args == ("0",)
    assert kwargs["p"] == Point("left", "right")
    assert kwargs["c"].layers[0].values == "0"


def test_the_tensor_inputs_of_a_program_are_found_in_the_order_of_its_graph():
    ones = torch.ones(2)
    options = {"a": [ones], "b": Point(ones, None)}
    program = torch.export.export(Nested(), (ones, ones), {"flag": False, "options": options})
    found = {path: node.name for path, node in program_inputs(program)}
    assert found == {
        (0,): "x", (1,): "more_0", ("options", "a", 0): "options_a_0",
        ("options", "b", "left"): "options_b_left",
    }  # fmt: skip
    assert [named_path(program, path) for path in found][:2] == [("x",), ("more_0",)]
    assert named_path(program, ("options", "a", 0)) == ("options", "a", 0)


def test_keyword_order_does_not_matter():
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x.sum() - y.sum()

    program = torch.export.export(
        Two(), (), {"y": torch.ones(3), "x": torch.ones(2)},
    )  # fmt: skip
    shapes = {path: tuple(node.meta["val"].shape) for path, node in program_inputs(program)}
    assert shapes == {("x",): (2,), ("y",): (3,)}


def test_a_program_without_example_inputs_is_refused():
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    program.example_inputs = None
    with pytest.raises(UsageError, match="has no example inputs"):
        list(program_inputs(program))


def test_a_static_cache_is_preallocated_and_a_dynamic_one_is_not():
    pairs = [(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))]
    static, dynamic = make_static_cache(pairs, 8), make_dynamic_cache(pairs)
    assert preallocated_caches((static,), {"cache": dynamic}) == {(0,)}
    assert preallocated_caches((), {"given": {"cache": static}}) == {("given", "cache")}
