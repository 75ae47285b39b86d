from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from torchferry.compiler import cache
from torchferry.compiler.graph import Translated
from torchferry.compiler.program import Feed, Result
from torchferry.compiler.session import TensorSession
from torchferry.converter.weight import weight_value
from torchferry.optimizer.rules import experimental

CPU = torch.device("cpu")
WEIGHT, TABLE = torch.randn(64, 32), torch.randn(64, 64)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHFERRY_CACHE", str(tmp_path))
    return tmp_path / "graphs"


def put(key: str = "k", constant: object = None) -> tuple[ir.Model, torch.Tensor]:
    """Keep ``x @ WEIGHT.t() @ TABLE + 1``, of which only WEIGHT is an argument."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 32]))
    weights = [weight_value(WEIGHT[2:].t(), "w"), weight_value(TABLE[2:], "t")]
    one = weight_value(torch.ones(1), "one")
    first = ir.node("MatMul", [x, weights[0]])
    second = ir.node("MatMul", [first.outputs[0], weights[1]])
    third = ir.node("Add", [second.outputs[0], one])
    for i, node in enumerate((first, second, third)):
        node.outputs[0].name = f"v{i}"
    third.outputs[0].type = x.type
    graph = ir.Graph([x], third.outputs, nodes=[first, second, third],
                     initializers=[*weights, one], opset_imports={"": 20})  # fmt: skip
    model = ir.Model(graph, ir_version=10)
    results = (Result(output=0), Result(constant=constant), Result(output=0, axes=(1, 0)))
    made = Translated(model, (Feed("x", 1),), results)
    session = TensorSession(model, ["CPUExecutionProvider"], CPU)
    cache.store(key, session.proto, made, {0: WEIGHT})
    given = torch.randn(3, 32)
    return model, given


def test_what_is_stored_is_found() -> None:
    _, x = put()
    entry = cache.find("k")
    assert entry is not None
    assert entry.feeds == (Feed("x", 1),)
    assert entry.results == (Result(output=0), Result(), Result(output=0, axes=(1, 0)))
    weights = entry.weights({0: WEIGHT})
    assert list(weights) == ["w"]
    assert weights["w"].data_ptr() == WEIGHT[2:].data_ptr()
    session = TensorSession(entry.model, ["CPUExecutionProvider"], CPU, weights)
    expected = x @ WEIGHT[2:].t() @ TABLE[2:] + 1
    torch.testing.assert_close(session([x])[0], expected, atol=1e-4, rtol=1e-4)


def test_weights_are_not_in_the_file(folder: Path) -> None:
    put()
    content = (folder / "k.graph").read_bytes()
    assert WEIGHT[2:].numpy().tobytes() not in content
    assert TABLE[2:].numpy().tobytes() in content
    assert [file.name for file in folder.iterdir()] == ["k.graph"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content.replace(b"torchferry graph 1", b"torchferry graph 0"),
        lambda content: b"{}\n" + content,
        lambda content: b"[1]\n",
        lambda content: b"",
    ],
)
def test_what_is_damaged_or_foreign_is_ignored(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    put()
    path = folder / "k.graph"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.find("k") is None
    put()
    assert cache.find("k") is not None


def test_what_is_not_there_and_a_cache_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.find("other") is None
    put()
    monkeypatch.setenv("TORCHFERRY_CACHE", "0")
    assert cache.find("k") is None
    put()  # nowhere


def test_a_result_that_json_has_not_is_not_stored() -> None:
    put(constant=torch.Size([1]))
    assert cache.find("k") is None


def test_a_folder_that_cannot_be_written_to_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHFERRY_CACHE", str(tmp_path / "file"))
    put()
    assert cache.find("k") is None


def test_what_was_not_used_for_longest_goes_first(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for age, key in enumerate("abc"):
        put(key)
        os.utime(folder / f"{key}.graph", (1000 - age, 1000 - age))
    size = (folder / "a.graph").stat().st_size
    assert cache.find("c") is not None  # is used now
    monkeypatch.setattr(cache, "_MOST_OF_ALL", 3 * size)
    put("d")
    assert sorted(file.stem for file in folder.iterdir()) == ["a", "c", "d"]


def test_what_is_very_large_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_OF_ONE", 1000)
    put()
    assert cache.find("k") is None


def test_an_entry_without_its_kernels_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put()
    monkeypatch.setattr(cache, "kernel_library", lambda model: tmp_path / "gone.so")
    assert cache.find("k") is None
    assert experimental.kernel_library is not cache.kernel_library
