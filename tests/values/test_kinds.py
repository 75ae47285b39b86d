import collections
import dataclasses
import sys
import types

import pytest

from torchferry.errors import UsageError
from torchferry.values.kinds import (
    MAPPING,
    attempt,
    attributes_of,
    class_name,
    find_class,
    find_class_here,
    find_kind,
    imported_classes,
    register,
)


class Box:
    def __init__(self, content):
        self.content = content


class RedBox(Box):
    pass


class Late:
    """Registered by name only."""


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


Pair = collections.namedtuple("Pair", "a b")


class Shelf(list):
    pass


def flatten_box(box):
    return {"content": box.content}, None


def unflatten_box(cls, children, context):
    box = cls.__new__(cls)
    box.content = children["content"]
    return box


register(Box, flatten=flatten_box, unflatten=unflatten_box)
register(class_name(Late), flatten=lambda _: ({}, None), unflatten=lambda cls, *_: cls())


def test_a_subclass_has_the_kind_of_its_base():
    assert find_kind(RedBox) is find_kind(Box)
    assert find_kind(RedBox).flatten(RedBox(3)) == ({"content": 3}, None)


def test_a_class_is_found_by_its_name():
    assert find_kind(Late).flatten(Late()) == ({}, None)


def test_an_entry_made_later_takes_effect():
    class New:
        pass

    assert find_kind(New) is None
    register(New, flatten=flatten_box, unflatten=unflatten_box)
    assert find_kind(New) is not None


@pytest.mark.parametrize("cls", [int, str, set, frozenset, type(None), object, type, bytes, range])
def test_what_is_no_container_has_no_kind(cls):
    assert find_kind(cls) is None


def test_a_second_entry_is_refused():
    with pytest.raises(UsageError, match="registered already"):
        register(Box, flatten=flatten_box, unflatten=unflatten_box)


def test_a_name_needs_its_module():
    with pytest.raises(UsageError, match="module:qualname"):
        register("Box", flatten=flatten_box, unflatten=unflatten_box)
    with pytest.raises(UsageError, match="give a class"):
        register(3, flatten=flatten_box, unflatten=unflatten_box)
    with pytest.raises(UsageError, match="are functions"):
        register("x:Box", flatten=flatten_box, unflatten="box")
    assert find_kind(int) is None


def test_imported_classes_hold_subclasses_but_no_builtin():
    found = imported_classes()
    assert {Box, RedBox, Late} <= set(found)
    assert not {list, dict, tuple} & set(found)
    assert found.index(Box) < found.index(RedBox)


@pytest.mark.parametrize(
    "cls", [tuple, list, dict, collections.OrderedDict, Box, RedBox, Late, Point, Pair]
)
def test_find_class_gives_back_what_class_name_wrote(cls):
    assert find_class(class_name(cls)) is cls


def test_find_class_imports_pytorch_and_transformers():
    name = "transformers.modeling_outputs:CausalLMOutputWithPast"
    assert find_class(name).__name__ == "CausalLMOutputWithPast"


@pytest.mark.parametrize(
    "name",
    [
        "builtins:eval",  # a function
        "builtins:int",  # a leaf
        "subprocess:Popen",  # no container
        "os:_Environ",  # a mapping, but not ours to make
        "no_such_module:Thing",
        "torch.no_such_module:Thing",
        "torch:NoSuchThing",
        "Thing",
        "",
    ],
)
def test_find_class_refuses_and_names_the_rest(name):
    with pytest.raises(UsageError, match=name or "class"):
        find_class(name)


def test_other_mappings_have_a_kind():
    assert find_kind(types.MappingProxyType) is find_kind(collections.ChainMap) is MAPPING
    assert find_kind(Shelf) is find_kind(list)


@pytest.mark.parametrize("module", ["torch.utils.model_dump.__main__", "transformers.cli.x"])
def test_a_file_cannot_have_a_library_module_imported(module):
    with pytest.raises(UsageError, match="is not found"):
        find_class(f"{module}:Anything")
    assert module not in sys.modules


class Titled(dict):
    """Its constructor wants what an item is not."""

    def __init__(self, title, items=()):
        super().__init__(items)
        self.title = title


class Row(list):
    __slots__ = ("title",)


class Two(tuple):
    __slots__ = ()

    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))


class Dotted(dict):
    """d.x is d["x"], as many have it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Greedy(collections.UserDict):
    """Adds an item to what it is given."""

    def __init__(self, items=()):
        super().__init__(items)
        self["more"] = 1


@dataclasses.dataclass
class Late2:
    x: int
    y: int = dataclasses.field(init=False)


def rebuilt(value):
    kind = find_kind(type(value))
    children, context = kind.flatten(value)
    return kind.unflatten(type(value), children, context)


@pytest.mark.parametrize(
    "value",
    [
        Titled("t", {"x": 1}),
        Row([1, 2]),
        Two(1, 2),
        Dotted(x=1),
        collections.Counter("aab"),
        collections.defaultdict(list, x=[1]),
        collections.OrderedDict(b=1, a=2),
        collections.UserDict(x=1),
        types.MappingProxyType({"x": 1}),
        Pair(1, 2),
    ],
)
def test_a_class_is_put_together_with_the_same_items(value):
    again = rebuilt(value)
    assert type(again) is type(value)
    assert again == value
    assert list(again) == list(value)


def test_a_dictionary_that_is_its_own_namespace_stays_one():
    again = rebuilt(Dotted(x=1))
    again["y"] = 2
    assert (again.x, again.y) == (1, 2)
    assert find_kind(Dotted).flatten(again)[1] is not None


def test_the_order_of_an_ordered_dictionary_is_its_own():
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert list(rebuilt(value)) == ["b", "a"]


def test_a_mapping_that_does_not_take_its_items_is_refused():
    value = Greedy({"x": 1})
    assert rebuilt(value) == value
    del value["more"]
    with pytest.raises(ValueError, match="does not give those items"):
        rebuilt(value)


def test_a_field_without_a_value_is_left_out():
    again = rebuilt(Late2(1))
    assert vars(again) == {"x": 1}


def test_attributes_beside_the_children():
    row, late = Row(), Late2(1)
    row.title, late.other = "a", 2
    for value, told, expected in (
        (Titled("t", {"x": 1}), ["x"], {"title": "t"}),
        (row, [], {"title": "a"}),
        (late, ["x"], {"other": 2}),
        (Dotted(x=1), ["x"], {}),
        ({"x": 1}, ["x"], {}),
        (Box(1), ["content"], {}),
    ):
        assert attributes_of(value, find_kind(type(value)), told) == expected


def test_attempt_gives_what_was_raised():
    assert attempt(int, "3") == (3, None)
    assert isinstance(attempt(int, "x")[1], ValueError)

    def deep():
        raise RecursionError

    with pytest.raises(RecursionError):
        attempt(deep)


def test_a_class_of_a_function_is_found_while_it_lives():
    @dataclasses.dataclass
    class Local:
        x: int

    name = class_name(Local)
    assert "<locals>" in name
    assert find_class_here(name) is Local
    assert find_class_here("collections:OrderedDict") is collections.OrderedDict
    with pytest.raises(UsageError, match="is not found"):
        find_class(name)
