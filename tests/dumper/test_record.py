import json

import pytest
import torch

from torchferry.dumper.part import checksum
from torchferry.dumper.record import (
    decode,
    encode,
    is_key,
    key_from_json,
    key_text,
    unique_name,
)
from torchferry.errors import UsageError


def written(value, key="k"):
    """A record with its checksums, and how to read its buffers."""
    entry = encode(key, value, set())
    contents = {}
    for buffer, note in zip(entry.buffers, entry.record["buffers"], strict=True):
        note["checksum"] = checksum(buffer.data)
        contents[note["name"]] = torch.frombuffer(bytearray(buffer.data), dtype=torch.uint8)
    return entry, lambda name, count: contents[name]


def test_there_and_back():
    entry, fetch = written({"x": torch.arange(3), "n": [1, None]})
    again = decode(json.loads(json.dumps(entry.record)), fetch)
    assert again["x"].tolist() == [0, 1, 2]
    assert again["n"] == [1, None]


def test_names_are_places():
    x = torch.ones(2)
    entry, _ = written({"a": [x, 3], "b": (x[1:],), "c": torch.ones(1)}, key=("model.0", 2, "I"))
    assert [name for name, _ in entry.views] == [
        "model.0.2.I.a.0", "model.0.2.I.b.0", "model.0.2.I.c",
    ]  # fmt: skip
    assert [note["name"] for note in entry.record["buffers"]] == [
        "model.0.2.I.a.0", "model.0.2.I.c",
    ]  # fmt: skip


def test_names_that_are_taken():
    taken: set[str] = set()
    assert encode("a", {"b": torch.ones(1)}, taken).views[0][0] == "a.b"
    assert encode("a.b", torch.ones(1), taken).views[0][0] == "a.b#2"
    assert encode((), torch.ones(1), taken).views[0][0] == "value"
    assert unique_name("a.b", taken) == "a.b#3"


def test_a_wrong_byte_is_told():
    entry, fetch = written(torch.arange(3))
    fetch(entry.record["buffers"][0]["name"], 24)[0] = 9
    with pytest.raises(UsageError, match="bytes of 'k' are not those that were written"):
        decode(entry.record, fetch)


def test_temporaries_live_as_long_as_the_entry():
    value = torch.tensor([1 + 2j] * 1000).conj()
    entries = [encode("k", value, set()) for _ in range(20)]
    assert len({bytes(entry.buffers[0].data) for entry in entries}) == 1


def test_keys():
    assert all(map(is_key, ["", "x", (), ("x", 0), (1,)]))
    assert not any(map(is_key, [0, None, ["x"], ("x", 0.5), ("x", True), (("x",),)]))
    assert key_from_json(["x", 0]) == ("x", 0)
    assert key_from_json("x") == "x"
    assert key_text(("x", 0, "I")) == "x.0.I"
    with pytest.raises(UsageError, match="no key"):
        key_from_json({"x": 1})
