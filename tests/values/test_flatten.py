import collections
import dataclasses
import gc
import json
import types
import weakref
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.utils import _pytree as pytree

from torchferry.errors import UsageError
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.difference import max_diff
from torchferry.values.flatten import (
    LEAF,
    flatten,
    flatten_with_containers,
    map_leaves,
    path_text,
    register_pytrees,
    structure_from_json,
    structure_to_json,
    unflatten,
)
from torchferry.values.kinds import register


class Named(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = None

    def __post_init__(self):
        if isinstance(self.x, str):
            raise TypeError("no text")


def rebuilt(value):
    leaves, structure = flatten(value)
    return unflatten([leaf for _, leaf in leaves], structure)


nested = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.frozensets(st.integers(), max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict)
        | st.tuples(inner, inner).map(lambda pair: Named(*pair))
        | st.tuples(st.integers(), inner).map(lambda pair: Frozen(*pair))
        | inner.map(lambda child: collections.defaultdict(list, {"k": child}))
    ),
    max_leaves=12,
)


@given(nested)
@settings(max_examples=150, deadline=None)
def test_unflatten_undoes_flatten(value):
    again = rebuilt(value)
    assert again == value
    assert type(again) is type(value)


@given(nested)
@settings(max_examples=150, deadline=None)
def test_a_structure_survives_json(value):
    structure = flatten(value)[1]
    text = json.dumps(structure_to_json(structure))
    assert structure_from_json(json.loads(text)) == structure


@given(nested)
@settings(max_examples=50, deadline=None)
def test_paths_are_as_many_as_leaves(value):
    leaves, structure = flatten(value)
    assert len(leaves) == structure.leaf_count


def test_paths_and_order():
    leaves, _ = flatten({"b": [1, (2,)], "a": None, 3: Frozen(x=4)})
    assert leaves == [
        (("b", 0), 1),
        (("b", 1, 0), 2),
        (("a",), None),
        ((3, "x"), 4),
        ((3, "y"), None),
    ]


def test_a_leaf_alone():
    assert flatten(5) == ([((), 5)], LEAF)
    assert unflatten([6], LEAF) == 6


@pytest.mark.parametrize("value", [[], (), {}, collections.OrderedDict()])
def test_empty_containers(value):
    leaves, structure = flatten(value)
    assert leaves == []
    assert unflatten([], structure) == value


def test_sets_and_modules_are_leaves():
    module = torch.nn.Linear(1, 1)
    leaves, _ = flatten([{1, 2}, module])
    assert [leaf for _, leaf in leaves] == [{1, 2}, module]


def test_named_results_of_pytorch():
    result = torch.max(torch.eye(2), dim=0)
    again = rebuilt(result)
    assert type(again) is type(result)
    assert again.indices is result.indices


def test_other_mappings():
    value = types.MappingProxyType({"x": 1})
    again = rebuilt(value)
    assert type(again) is types.MappingProxyType
    assert again == value


def test_a_default_dict_keeps_its_factory():
    assert rebuilt(collections.defaultdict(list, a=1)).default_factory is list


def test_dataclasses_are_rebuilt_without_running_their_checks():
    assert map_leaves(str, Frozen(1)).x == "1"


def test_unflatten_counts_leaves():
    _, structure = flatten([1, 2])
    with pytest.raises(UsageError, match="2 leaves, 3 were given"):
        unflatten([1, 2, 3], structure)
    with pytest.raises(UsageError, match="2 leaves, 1 were given"):
        unflatten([1], structure)


def test_path_text():
    assert path_text(()) == ""
    assert path_text(("past_key_values", "key_cache", 0)) == "past_key_values.key_cache.0"


def test_map_leaves_keeps_the_value_given():
    value = {"x": [1, 2]}
    assert map_leaves(lambda x: x * 10, value) == {"x": [10, 20]}
    assert value == {"x": [1, 2]}


@pytest.mark.parametrize(
    "data",
    [
        5,
        {"type": "builtins:list"},
        {"type": "builtins:list", "children": [None], "keys": []},
        {"type": "subprocess:Popen", "children": []},
        {"children": []},
        {"type": "builtins:dict", "children": [None], "keys": [{"dtype": "load"}]},
    ],
)
def test_bad_json_is_a_usage_error(data):
    with pytest.raises(UsageError):
        structure_from_json(data)


def test_keys_that_json_has_not():
    with pytest.raises(UsageError, match=r"builtins:dict holds a frozenset"):
        structure_to_json(flatten({frozenset({1}): 1})[1])


def test_tuples_and_dtypes_as_keys():
    structure = flatten({(1, "a"): 1, torch.float32: 2, True: 3})[1]
    assert structure_from_json(json.loads(json.dumps(structure_to_json(structure)))) == structure


def test_model_outputs():
    from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

    value = CausalLMOutput(logits=torch.ones(2), hidden_states=(torch.zeros(1),))
    leaves, structure = flatten(value)
    assert [path for path, _ in leaves] == [("logits",), ("hidden_states", 0)]
    assert structure_from_json(structure_to_json(structure)) == structure
    again = rebuilt(value)
    assert type(again) is CausalLMOutput
    assert again.loss is None
    assert again.logits is again["logits"] is again[0] is value.logits
    assert again.to_tuple() == value.to_tuple()
    # Its own constructor would take a first field that is a list of pairs for its fields.
    pairs = map_leaves(lambda _: [("x", 1)], BaseModelOutput(last_hidden_state=torch.ones(1)))
    assert pairs.last_hidden_state == [("x", 1)]


class Wrapped:
    def __init__(self, inner):
        self.inner = inner


register(
    Wrapped,
    flatten=lambda value: ({"inner": value.inner}, ("layout", 1)),
    unflatten=lambda cls, children, context: cls(children["inner"]),
)


def test_pytrees_see_inside_registered_classes():
    assert register_pytrees(Wrapped) == ()
    assert register_pytrees(Wrapped) == ()  # again does no harm
    found, spec = pytree.tree_flatten_with_path([Wrapped((1, 2))])
    assert [pytree.keystr(path) for path, _ in found] == ["[0]['inner'][0]", "[0]['inner'][1]"]
    assert pytree.tree_unflatten([5, 6], spec)[0].inner == (5, 6)
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_a_foreign_registration_stays():
    class Foreign(Wrapped):
        pass

    pytree.register_pytree_node(Foreign, lambda _: ([], "theirs"), lambda *_: Foreign(None))
    assert register_pytrees(Foreign) == (Foreign,)
    assert pytree.tree_flatten(Foreign(3))[1].context == "theirs"


def test_a_foreign_registration_without_key_paths_gets_them():
    @dataclasses.dataclass
    class Pair:
        x: Any
        y: Any

    @dataclasses.dataclass
    class Half(Pair):
        pass

    pytree.register_pytree_node(Pair, lambda p: ((p.x, p.y), "theirs"), lambda v, _: Pair(*v))
    pytree.register_pytree_node(Half, lambda p: ((p.x,), p.y), lambda v, y: Half(*v, y))
    with pytest.raises(ValueError, match="flatten_with_keys_fn"):
        pytree.tree_flatten_with_path([Pair(1, 2)])
    register_pytrees()
    found, spec = pytree.tree_flatten_with_path([Pair(1, [2]), Half(3, 4)])
    assert [pytree.keystr(path) for path, _ in found] == ["[0]['x']", "[0]['y'][0]", "[1][0]"]
    assert pytree.tree_unflatten([5, 6, 7], spec) == [Pair(5, [6]), Half(7, 4)]


def test_pytrees_see_inside_a_dataclass_that_is_named():
    @dataclasses.dataclass
    class Point:
        x: Any

    assert pytree.tree_leaves(Point(1)) == [Point(1)]
    register_pytrees(Point)
    assert pytree.tree_map(str, Point(1)) == Point("1")


def test_register_pytrees_refuses_what_holds_nothing():
    with pytest.raises(UsageError, match="builtins:int"):
        register_pytrees(int)


def test_register_pytrees_leaves_model_outputs_to_transformers():
    from transformers.modeling_outputs import MaskedLMOutput

    register_pytrees(MaskedLMOutput)
    MaskedLMOutput(logits=torch.ones(1))  # registers itself, if it has not yet
    assert pytree.tree_leaves(MaskedLMOutput(logits=3)) == [3]


@pytest.mark.parametrize(
    "use",
    [
        flatten,
        clone,
        lambda value: string_type(value, with_min_max=True),
        lambda value: max_diff(value, clone(value)),
        lambda value: map_leaves(lambda leaf: leaf, value),
    ],
    ids=["flatten", "clone", "string_type", "max_diff", "map_leaves"],
)
def test_nothing_is_kept_until_the_next_garbage_collection(use):
    x = torch.ones(3)
    value, alive = {"a": [x, (x,)]}, weakref.ref(x)
    gc.disable()
    try:
        use(value)
        del value, x
        assert alive() is None
    finally:
        gc.enable()


class Angry(collections.UserDict):
    def items(self):
        raise OSError("gone")


def test_what_cannot_be_taken_apart_is_named():
    with pytest.raises(UsageError, match=r"the Angry at x\.0 cannot be taken apart: gone"):
        flatten({"x": [Angry()]})
    value = [1]
    value.append(value)
    with pytest.raises(UsageError, match="contains itself"):
        flatten(value)


def test_containers_come_before_what_they_hold():
    inner = [1]
    value = {"x": (inner, 2), "y": {}}
    leaves, structure, containers = flatten_with_containers(value)
    assert (leaves, structure) == flatten(value)
    assert containers == [
        ((), value), (("x",), value["x"]), (("x", 0), inner), (("y",), {}),
    ]  # fmt: skip
    assert containers[2][1] is inner


def test_containers_that_are_one_object_are_put_together_as_one():
    _, structure = flatten([[1], [2], {"x": [3]}])
    made = unflatten([1, 2, 3], structure, {2: 1, 4: 1})
    assert made[0] is made[1] is made[2]["x"]
    for shared in ({1: 2}, {1: 1}, {1: 0}, {2: -1}, {3: 1}):
        with pytest.raises(UsageError, match="is not one with container"):
            unflatten([1, 2, 3], structure, shared)


def test_a_class_may_be_replaced_when_it_is_read():
    data = {"type": "gone:Thing", "keys": ["x"], "children": [None]}
    with pytest.raises(UsageError, match="gone:Thing is not found"):
        structure_from_json(data)
    assert unflatten([1], structure_from_json(data, lambda _: dict)) == {"x": 1}


def test_an_object_in_several_places_stays_one_when_leaves_are_mapped():
    x = torch.ones(2)
    first, second, other = map_leaves(lambda leaf: leaf * torch.rand(1), [x, x, torch.ones(2)])
    assert first is second
    assert other is not first
