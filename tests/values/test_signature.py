import json
import sys
from collections import namedtuple

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values import make_dynamic_cache, string_type
from torchferry.values.flatten import flatten
from torchferry.values.signature import Signature, Slot

Pair = namedtuple("Pair", "left right")


def signature_of(outputs, numbers=()):
    pairs, structure = flatten(outputs)
    leaves = tuple([f"out_{i}"] if leaf is ... else leaf for i, (_, leaf) in enumerate(pairs))
    return Signature(
        parameters=("x", "past_key_values"),
        inputs=(Slot("x", ("x",)), Slot("past_key_values.0.key", ("cache", "key_cache", 0))),
        constants={"use_cache": True},
        outputs=structure,
        leaves=leaves,
        numbers=numbers,
    )


@pytest.mark.parametrize(
    "outputs",
    [..., (..., ...), [...], {"a": ..., "b": {"c": (..., None, 3, "word", 2.5)}}, ()],
    ids=str,
)
def test_survives_json(outputs):
    signature = signature_of(outputs)
    again = Signature.from_json(signature.to_json())
    assert again == signature
    results = {name: torch.tensor(i) for i, name in enumerate(signature.output_names)}
    assert string_type(again.nest(results)) == string_type(signature.nest(results))


def test_nests_results_as_the_model_returns_them():
    signature = signature_of({"a": ..., "b": [..., None, 7]})
    nested = signature.nest({"out_0": torch.ones(2), "out_1": torch.zeros(3)})
    assert nested["b"][1:] == [None, 7]
    assert torch.equal(nested["a"], torch.ones(2))
    assert torch.equal(nested["b"][0], torch.zeros(3))


def test_numbers_come_back_as_numbers():
    signature = signature_of((..., ...), numbers=("out_1",))
    _, size = signature.nest({"out_0": torch.ones(2), "out_1": torch.tensor(5)})
    assert size == 5
    assert type(size) is int


def test_caches_come_back_as_caches():
    pytest.importorskip("transformers")
    cache = make_dynamic_cache([(torch.zeros(2, 1, 3, 4), torch.ones(2, 1, 3, 4))])
    pairs, structure = flatten((cache,))
    signature = Signature((), (), {}, structure, tuple([f"t{i}"] for i in range(len(pairs))))
    again = Signature.from_json(signature.to_json())
    (rebuilt,) = again.nest({f"t{i}": leaf for i, (_, leaf) in enumerate(pairs)})
    assert string_type(rebuilt, with_shape=True) == string_type(cache, with_shape=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"parameters": 3}', "{not json"])
def test_foreign_text_is_refused(text):
    with pytest.raises(UsageError, match="signature cannot be read"):
        Signature.from_json(text)


def test_a_class_named_in_a_file_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    data = json.loads(signature_of(Pair(..., ...)).to_json())
    text = json.dumps(data).replace(f"{__name__}:Pair", "hostile_module:Pair")
    assert "hostile_module" in text
    with pytest.raises(UsageError, match="hostile_module"):
        Signature.from_json(text)
    assert "hostile_module" not in sys.modules


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("leaves", []),
        ("leaves", [[3], ["b"]]),
        ("leaves", [{}, ["b"]]),
        ("inputs", [["x", []]]),
        ("inputs", [["x"]]),
        ("inputs", [[1, ["x"]]]),
        ("inputs", [["x", [None]]]),
        ("constants", {"flag": [1]}),
        ("constants", 3),
        ("numbers", "ab"),
        ("parameters", [1]),
        ("outputs", {"type": "builtins:tuple", "children": 3}),
        ("outputs", {"type": "os:system", "children": []}),
    ],
)
def test_a_damaged_part_is_refused(part, value):
    data = json.loads(signature_of((..., ...)).to_json())
    Signature.from_json(json.dumps(data))
    with pytest.raises(UsageError):
        Signature.from_json(json.dumps({**data, part: value}))
