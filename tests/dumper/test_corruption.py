"""A damaged, foreign or hostile file: a UsageError or the value that was written."""

import hashlib
import json
import random
import shutil

import onnx
import pytest
import torch
from safetensors.torch import save_file

from torchferry.dumper.document import DOCUMENT
from torchferry.dumper.store import open_dump, read_dump
from torchferry.errors import UsageError
from torchferry.graph.outline import read_proto

FORMATS = ("dump.onnx", "dump.safetensors", "dump")
TIMES = 500


def truncate(data, random):
    return data[: random.randrange(len(data))]


def flip(data, random):
    damaged = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 5, 50])):
        damaged[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def splice(data, random):
    start, end = sorted(random.randrange(len(data)) for _ in range(2))
    at = random.randrange(len(data))
    return data[:at] + data[start:end] + data[at + random.choice([0, end - start]) :]


def zero(data, random):
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + bytes(end - start) + data[end:]


@pytest.mark.parametrize("name", FORMATS)
def test_random_damage(name, tmp_path, value, same_bits):
    path = tmp_path / name
    with open_dump(path) as dump:
        dump.add(("model", 0, "I"), value)
        dump.add("b", [value["long"][5:], 3.5, {"x": "y"}])
    written = read_dump(path)
    assert same_bits(value, written["model", 0, "I"])
    files = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    contents = [file.read_bytes() for file in files]
    chance = random.Random(0)  # noqa: S311  # the same damage in every run
    refused = longest = 0
    for _ in range(TIMES):
        number = chance.randrange(len(files))
        change = chance.choice([truncate, flip, splice, zero])
        files[number].write_bytes(change(contents[number], chance))
        try:
            read = read_dump(path)
        except UsageError as error:
            longest = max(longest, len(str(error).replace(str(tmp_path), "")))
            refused += 1
        else:
            assert list(read) == list(written)
            assert same_bits(written, read)
        files[number].write_bytes(contents[number])
    assert refused > TIMES / 2
    assert longest < 500


def with_changes(path, change):
    """Change the description of an .onnx dump, and make its sum right again."""
    model = read_proto(path)
    texts = {entry.key: entry.value for entry in model.metadata_props}
    document = json.loads(texts[DOCUMENT])
    text = json.dumps(change(document) or document)
    del model.metadata_props[:]
    sum_ = hashlib.sha256(text.encode()).hexdigest()
    onnx.helper.set_model_props(model, {DOCUMENT: text, f"{DOCUMENT}.sha256": sum_})
    path.write_bytes(model.SerializeToString())


def leaf(**changes):
    def change(document):
        tensor = document["entries"][0]["leaves"][0]["tensor"]
        tensor.update(changes)

    return change


def at(*place, to):
    def change(document):
        inner = document
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = to

    return change


E0 = ("entries", 0)
DEEP = json.loads('{"type":"builtins:list","children":[' * 200 + "null" + "]}" * 200)

HOSTILE = {
    "buffer of all memory": at(*E0, "buffers", 0, "bytes", to=2**50),
    "negative buffer": at(*E0, "buffers", 0, "bytes", to=-4),
    "buffer without a number": at(*E0, "buffers", 0, "bytes", to="x"),
    "another buffer's name": at(*E0, "buffers", 0, "name", to="nothing"),
    "checksum": at(*E0, "buffers", 0, "checksum", to=0),
    "no checksum": at(*E0, "buffers", 0, to={"name": "x", "bytes": 4}),
    "more elements": leaf(shape=[2, 1000]),
    "elements without end": leaf(shape=[2**60, 2**60]),
    "negative size": leaf(shape=[-1]),
    "truth as size": leaf(shape=[True]),
    "offset": leaf(offset=10**9),
    "negative offset": leaf(offset=-4),
    "odd offset": leaf(offset=1, shape=[1]),
    "strides outwards": leaf(shape=[2, 2], strides=[10**6, 4]),
    "negative strides": leaf(shape=[2], offset=4, strides=[-4]),
    "too few strides": leaf(shape=[2, 2], strides=[4]),
    "larger dtype": leaf(dtype="torch.complex128"),
    "no dtype": leaf(dtype="torch.nn"),
    "quantized": leaf(dtype="torch.qint8"),
    "array's dtype": leaf(dtype="<f4"),
    "record": leaf(dtype="i4,f8"),
    "other buffer": leaf(buffer=99),
    "last buffer": leaf(buffer=-1),
    "gradient of integers": leaf(dtype="torch.int32", requires_grad=True),
    "array of a tensor's dtype": at(
        *E0, "leaves", 0, to={"array": {"buffer": 0, "dtype": "torch.float32", "shape": [1]}}
    ),
    "reference forwards": at(*E0, "leaves", 0, to={"same": 1}),
    "reference to itself": at(*E0, "leaves", 0, to={"same": 0}),
    "unknown leaf": at(*E0, "leaves", 0, to={"pickle": "gASVHQ=="}),
    "leaf without a place": at(*E0, "leaves", 0, to={"tensor": None}),
    "list as leaf": at(*E0, "leaves", 0, to=[1]),
    "wrong bits": at(*E0, "leaves", 0, to={"float": "zz"}),
    "wrong device": at(*E0, "leaves", 0, to={"device": "nowhere:x"}),
    "digits without end": at(*E0, "leaves", 0, to={"int": "z"}),
    "a leaf less": at(*E0, "leaves", to=[]),
    "no leaves": at(*E0, "leaves", to=None),
    "a class that runs things": at(
        *E0, "structure", to={"type": "subprocess:Popen", "children": [None]}
    ),
    "a module": at(*E0, "structure", to={"type": "torch:nn", "children": [None]}),
    "a module that is not there": at(
        *E0, "structure", to={"type": "torch.nothing:X", "children": [None]}
    ),
    "a cache of nothing": at(
        *E0,
        "structure",
        to={
            "type": "transformers.cache_utils:DynamicCache",
            "children": [None, None],
            "keys": ["x", "y"],
            "context": [[["os:System", [], []]], []],
        },
    ),
    "deep": at(*E0, "structure", to=DEEP),
    "no structure": at(*E0, "structure", to=3),
    "key": at(*E0, "key", to={"x": 1}),
    "no key": at(*E0, to={}),
    "entry": at(*E0, to=None),
    "entries": at("entries", to={}),
    "twice": lambda document: document["entries"].append(document["entries"][0]),
    "no list": lambda _: {"version": 1},
    "text": lambda _: "hello",
    "later version": at("version", to=3),
    "whole of two": lambda d: {**d, "whole": True, "entries": d["entries"] * 2},
}


@pytest.fixture
def dumped(tmp_path):
    path = tmp_path / "x.onnx"
    with open_dump(path) as dump:
        dump.add("a", [torch.arange(2.0), torch.arange(3, dtype=torch.int32), 7])
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_with_right_checksums(name, dumped):
    with_changes(dumped, HOSTILE[name])
    with pytest.raises(UsageError):
        read_dump(dumped)


def test_unchanged_records_are_read(dumped):
    with_changes(dumped, lambda document: None)
    assert read_dump(dumped)["a"][2] == 7


@pytest.mark.parametrize(
    ("location", "offset"),
    [
        ("../secret", "0"),
        ("/etc/hostname", "0"),
        ("", "0"),
        ("..", "0"),
        ("x\0", "0"),
        ("x.onnx_data", "-4"),
        ("x.onnx_data", "9" * 30),
        ("x.onnx_data", "4"),
        ("x.onnx_data", "²"),
    ],
)
def test_data_elsewhere(location, offset, dumped):
    data = dumped.with_name("x.onnx_data")
    model = read_proto(dumped)
    tensor = next(t for t in model.graph.initializer if t.name.endswith("0.data"))
    data.write_bytes(tensor.raw_data)
    shutil.copy(data, dumped.parent.parent / "secret")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = {"location": location, "offset": offset, "length": str(data.stat().st_size)}
    for key, text in place.items():
        tensor.external_data.add(key=key, value=text)
    dumped.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError):
        read_dump(dumped)


def test_foreign_files(tmp_path):

    save_file({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    value = onnx.helper.make_tensor_value_info("x", 1, [1])
    graph = onnx.helper.make_graph([], "g", [value], [value])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "x.onnx")
    (tmp_path / "empty").mkdir()
    for name in ("x.safetensors", "x.onnx", "empty"):
        with pytest.raises(UsageError, match="no dump of torchferry"):
            read_dump(tmp_path / name)
    for content in (b"", b"\0", b"\xff" * 100, b"{}", b"PK\3\4" + b"\0" * 90, b"hello " * 50):
        for name in ("y.safetensors", "y.onnx", "y/000000.safetensors"):
            (tmp_path / "y").mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
            with pytest.raises(UsageError):
                read_dump((tmp_path / name) if "/" not in name else tmp_path / "y")


def test_a_checksum_is_what_tells_bytes(dumped):
    model = read_proto(dumped)
    tensor = model.graph.initializer[0]
    tensor.raw_data = bytes(len(tensor.raw_data))
    dumped.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="not those that were written"):
        read_dump(dumped)
