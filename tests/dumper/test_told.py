import collections
import dataclasses

import pytest
import torch

from torchferry.dumper.store import open_dump, read_dump
from torchferry.dumper.told import lost_of_container, lost_of_tensor, shared_containers
from torchferry.errors import UsageError
from torchferry.values import make_dynamic_cache

FORMATS = ("dump.onnx", "dump.safetensors", "dump")


class Named(list):
    pass


@dataclasses.dataclass
class Doubled:
    x: int

    def __post_init__(self):
        self.twice = 2 * self.x


@dataclasses.dataclass
class Record:
    x: object
    y: object = None


def named():
    value = Named([1])
    value.name = "a"
    return value


PAIRS = [(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))]


@pytest.mark.parametrize(
    ("value", "lost"),
    [
        (named(), ["name"]),
        (Named([1]), []),
        (Doubled(1), ["twice"]),
        (collections.ChainMap({"a": 1}, {"a": 2}), ["maps"]),
        (collections.UserDict(a=torch.ones(2)), []),
        (collections.OrderedDict(a=1), []),
        (make_dynamic_cache(PAIRS), []),
        ((1, 2), []),
        (torch.ones(1), []),
    ],
)
def test_attributes_that_are_lost(value, lost):
    assert lost_of_container(value) == lost


def test_a_batch_of_a_tokenizer():
    transformers = pytest.importorskip("transformers")
    assert lost_of_container(transformers.BatchEncoding({"x": 1})) == []
    found = lost_of_container(transformers.BatchEncoding({"x": 1}, n_sequences=1))
    assert found == ["_n_sequences"]


def test_attributes_of_tensors():
    x = torch.ones(1)
    x._of_pytorch = 1
    assert lost_of_tensor(x) == []
    x.note = 1
    assert lost_of_tensor(x) == ["note"]


def test_containers_that_are_shared():
    one = [1]
    pair = (1, 2)
    containers = [((), []), ((), one), ((), pair), ((), pair), ((), one), ((), one)]
    assert shared_containers(containers) == [(4, 1), (5, 1)]
    assert shared_containers([]) == []


def refused():
    named = Record(torch.ones(1))
    named.note = 1
    tagged, loop = torch.ones(1), [torch.ones(1)]
    tagged.note = 1
    loop.append(loop)
    parts = [torch.zeros(2), torch.zeros(3)]
    return {
        "x is a Record with attributes .*(note)": named,
        r"x is a ChainMap with attributes .*\(maps\)": collections.ChainMap({"a": 1}, {}),
        "one with note, which a dump does not keep": tagged,
        "contains itself": loop,
        "is nested; give its parts": torch.nested.nested_tensor(parts),
        "of layout torch.sparse_coo": torch.eye(2).to_sparse(),
        "no tensor, array": torch.nested.nested_tensor(parts, layout=torch.jagged),
    }


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_would_be_lost_is_refused_by_name(tmp_path):
    with open_dump(tmp_path / "x.onnx") as dump:
        for message, value in refused().items():
            with pytest.raises(UsageError, match=message):
                dump.add("a", {"x": value})
        with pytest.raises(UsageError, match=r"torch\.func"):
            torch.func.vmap(lambda x: dump.add("a", x))(torch.ones(2, 3))
    assert read_dump(tmp_path / "x.onnx") == {}


@pytest.mark.parametrize("name", FORMATS)
def test_a_list_that_is_passed_twice_is_one_again(name, tmp_path):
    one, pair = [torch.ones(1)], (1, 2)
    data = {"x": one}
    with open_dump(tmp_path / name) as dump:
        dump.add("a", [one, data, (data, pair, pair), make_dynamic_cache([]), one])
        dump.add("b", one)
    read = read_dump(tmp_path / name)
    first, second, third, _, last = read["a"]
    assert first is second["x"] is last
    assert third[0] is second
    assert read["b"] is not first
    assert first[0] is last[0]


def test_fields_without_a_value_and_keys_of_half_characters(tmp_path):
    value = Record(torch.ones(1), {"\ud800": torch.ones(1)})
    del value.x
    for name in FORMATS:
        with open_dump(tmp_path / name) as dump:
            dump.add("a", value)
        read = read_dump(tmp_path / name)["a"]
        assert list(vars(read)) == ["y"]
        assert list(read.y) == ["\ud800"]
