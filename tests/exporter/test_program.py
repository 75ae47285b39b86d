from __future__ import annotations

import copy
import gc
import tempfile
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch

from torchferry.capturer import accept_aliases, capture
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.exporter import export
from torchferry.exporter.program import OnnxProgram, load
from torchferry.observer import Observation
from torchferry.report import Report
from torchferry.values import max_diff
from torchferry.zoo import catalogue
from versions import at_least

X, SCALE = torch.rand(7, 4), torch.tensor(2.0)


def again(walked: Any) -> OnnxProgram:
    """The same model in a program that was neither saved nor run."""
    return OnnxProgram(walked.program.model)


def test_a_call_takes_and_gives_what_the_model_does(walked: Any) -> None:
    program = again(walked)
    with torch.no_grad():
        expected = walked.model(X, scale=SCALE)
    for got in (program(X, SCALE), program(X, scale=SCALE), program(x=X, scale=SCALE)):
        assert max_diff(expected, got).abs < 1e-5
        assert isinstance(got["scores"], tuple)


def test_save_and_load_give_the_same_program(walked: Any, tmp_path: Path) -> None:
    program = again(walked)
    path = program.save(tmp_path / "mine.onnx")
    assert program.path == path == tmp_path / "mine.onnx"
    assert {p.name for p in tmp_path.iterdir()} == {"mine.onnx", "mine.onnx_data"}
    loaded = load(str(path))
    assert (loaded.path, loaded.program, loaded.report) == (path, None, None)
    assert [i.name for i in loaded.model.graph.inputs] == ["x", "scale"]
    assert max_diff(program(X, SCALE), loaded(X, SCALE)).abs == 0


def test_a_folder_is_loaded_by_its_model(walked: Any, tmp_path: Path) -> None:
    again(walked).save(str(tmp_path / "model.onnx"))
    assert load(tmp_path).path == tmp_path / "model.onnx"


def test_a_loaded_program_can_be_saved_elsewhere_and_over_itself(
    walked: Any, tmp_path: Path
) -> None:
    first = again(walked).save(tmp_path / "first.onnx")
    expected = load(first)(X, SCALE)
    program = load(first)
    program.save(first)
    second = program.save(tmp_path / "second.onnx")
    for path in (first, second):
        assert max_diff(expected, load(path)(X, SCALE)).abs == 0


@pytest.mark.parametrize("name", ["model", "model.pt", "model.onnx.gz", ".onnx"])
def test_only_onnx_files_are_written(walked: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"give a file name that ends in \.onnx"):
        again(walked).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(walked: Any, tmp_path: Path) -> None:
    program = again(walked)
    with pytest.raises(UsageError, match=r"cannot write .*No such file"):
        program.save(tmp_path / "no" / "model.onnx")
    assert program.path is None


def test_a_program_that_was_not_saved_runs_from_a_file_that_goes_with_it(
    walked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = again(walked)
    program(X, SCALE)
    program(X[:2], SCALE)
    (folder,) = tmp_path.iterdir()
    assert {p.name for p in folder.iterdir()} == {"model.onnx", "model.onnx_data"}
    assert program.path is None
    del program
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((X.double(), SCALE), {}), "input x is torch.float64, but the model takes"),
        (((X[:, :2], SCALE), {}), "input x has shape 7x2, but the model takes batch_size x 4"),
        (((X,), {}), "no value for input scale"),
        (((X, SCALE, SCALE), {}), "too many positional arguments"),
        (((X, SCALE), {"mask": X}), "no input for argument mask"),
    ],
)
def test_arguments_that_do_not_fit(walked: Any, arguments: Any, message: str) -> None:
    args, kwargs = arguments
    with pytest.raises(UsageError, match=message):
        walked.program(*args, **kwargs)


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(UsageError, match="there is no file"):
        load(tmp_path)
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(UsageError, match="is no ONNX model"):
        load(tmp_path / "text.onnx")
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    node = ir.Node("", "Relu", [x])
    node.outputs[0].name = "y"
    node.outputs[0].type, node.outputs[0].shape = x.type, x.shape
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}, name="g")
    ir.save(ir.Model(graph, ir_version=10), tmp_path / "foreign.onnx")
    with pytest.raises(UsageError, match="was not written by torchferry"):
        load(tmp_path / "foreign.onnx")


@pytest.mark.skipif(not at_least("transformers", "5.0"), reason="its masks ask for batch 1")
def test_a_model_with_a_cache_takes_and_gives_caches(tmp_path: Path) -> None:
    entry = catalogue.build("tiny-llm")
    sets = [((), inputs) for inputs in entry.input_sets]
    seen = Observation.from_inputs(entry.model, sets)
    OnnxProgram(convert(capture(entry.model, seen).program)).save(tmp_path / "llm.onnx")
    program = load(tmp_path / "llm.onnx")
    names = [i.name for i in program.model.graph.inputs]
    assert names == [
        "input_ids", "attention_mask", "position_ids",
        "past_key_values.0.key", "past_key_values.0.value",
    ]  # fmt: skip
    for call in seen.calls:
        args, kwargs = seen.inputs_at(seen.sizes_of(call))
        got = program(*args, **kwargs)
        with torch.no_grad():
            expected = entry.model(*args, **accept_aliases(entry.model, kwargs))
        assert type(got) is type(expected)
        assert type(got.past_key_values) is type(expected.past_key_values)
        assert max_diff(expected, got).abs < 1e-4


def test_the_repr_is_short(walked: Any, tmp_path: Path) -> None:
    program = again(walked)
    assert repr(program) == f"OnnxProgram({len(program.model.graph)} nodes)"
    program.save(tmp_path / "m.onnx")
    assert repr(program).endswith(f"nodes, path={str(tmp_path / 'm.onnx')!r})")
    program.report = Report("t", False, "v" * 5000)
    assert "ok=False" in repr(program)
    assert len(repr(program)) < 300


@pytest.mark.parametrize("way", ["optimizer", "data", "loaded"])
def test_weights_that_changed_since_the_export_are_not_saved(way: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    other = copy.deepcopy(model)
    x = torch.randn(5, 3)
    expected = model(x).detach()
    programs = [export(model, [((torch.randn(n, 3),), {}) for n in (2, 4)]) for _ in "ab"]
    torch.testing.assert_close(programs[0](x), expected)
    match way:
        case "optimizer":
            model(x).sum().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
        case "data":
            for parameter in model.parameters():
                parameter.data.mul_(0.9).add_(0.1)
        case _:
            model.load_state_dict({name: one + 1 for name, one in other.state_dict().items()})
    torch.testing.assert_close(programs[0](x), expected)  # its session has the old weights
    for program in programs:
        with pytest.raises(UsageError, match="have changed since it was exported"):
            program.save(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="have changed since it was exported"):
        programs[1](x)
    assert not [*tmp_path.iterdir()]
