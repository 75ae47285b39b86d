import io
import json
import math
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from rich.console import Console
from safetensors.torch import save_file

from torchferry.cli.commands.inspect import _DUMP, inspect
from torchferry.dumper import open_dump
from torchferry.dumper.document import DOCUMENT
from torchferry.errors import UsageError
from torchferry.graph.outline import STATE_KEY
from torchferry.report import html, text
from torchferry.report import json as as_json


def shown(report):
    stream = io.StringIO()
    text.render(report, Console(file=stream))
    return stream.getvalue()


@pytest.fixture
def dump(tmp_path):
    with open_dump(tmp_path / "x.safetensors") as writer:
        writer.add(("model.decoder", 0, "I"), ((torch.arange(30.0).reshape(2, 15),), {}))
        writer.add(("model.decoder", 0, "O"), [torch.tensor([1.0, math.nan, math.inf]), "x"])
    return tmp_path / "x.safetensors"


def test_a_dump(dump):
    report = inspect(dump)
    assert report.ok
    page = shown(report)
    assert "a dump: 2 entries, 2 tensors, " in page
    lines = [line.split() for line in page.splitlines()]
    assert ["('model.decoder',", "0,", "'I')", "((T1s2x15,),{})"] in lines
    assert ["('model.decoder',", "0,", "'O')", "#2[T1s3,str]"] in lines
    assert ["..0.0", "T1s2x15", "120", "B", "0", "29", "14.5", "0", "0"] in lines
    assert ["..0", "T1s3", "12", "B", "1", "inf", "inf", "!", "1", "!", "1"] in lines
    assert "Histograms" not in page


def test_the_other_forms(dump, tmp_path):
    report = inspect(dump)
    html.dump(report, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert page.count('<svg class="bars"') == 1  # two tensors, one of them with one finite value
    assert "0 to 2.417: 3" in page
    as_json.dump(report, tmp_path / "x.json")
    data = json.loads((tmp_path / "x.json").read_text())["data"]
    assert data["kind"] == "dump"
    tensor = data["entries"][0]["tensors"][0]
    assert tensor["statistics"]["largest"] == 29
    assert sum(tensor["statistics"]["counts"]) == 30


def test_pages_stay_small(tmp_path):
    with open_dump(tmp_path / "x") as writer:
        writer.add("a", [torch.randn(5) for _ in range(500)])
    report = inspect(tmp_path / "x")
    html.dump(report, tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size < 300_000
    page = shown(report)
    assert "the first 300 rows of 500 tensors" in page
    assert len(report.data["entries"][0]["tensors"]) == 500


def test_a_value_that_is_one_tensor_has_one_row(tmp_path):
    with open_dump(tmp_path / "x") as writer:
        writer.add("a", torch.tensor([1.0, 3.0]))
    rows = [line.split() for line in shown(inspect(tmp_path / "x")).splitlines()]
    assert ["'a'", "T1s2", "8", "B", "1", "3", "2", "0", "0"] in rows
    assert not any(row[:1] == [".."] for row in rows)


def test_an_empty_dump(tmp_path):
    with open_dump(tmp_path / "x.onnx"):
        pass
    page = shown(inspect(tmp_path / "x.onnx"))
    assert "0 entries, 0 tensors" in page


def test_a_model(tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=[weight])
    onnx.save(helper.make_model(graph, producer_name="me"), tmp_path / "x.onnx")
    report = inspect(tmp_path / "x.onnx")
    page = shown(report)
    assert "an ONNX model: 2 nodes" in page
    assert [line.split() for line in page.splitlines() if " FLOAT" in line] == [
        ["input", "x", "FLOAT[batch,", "3]"],
        ["output", "y", "FLOAT[batch,", "3]"],
    ]
    assert "1, 12 B" in page
    assert "Abs" in page
    assert report.data["operators"][0][1] == 1


def test_the_state_of_a_model(tmp_path):
    names = {"input": ("x", "state.a.tail"), "output": ("y", "state_next.a.tail")}
    values = {
        kind: [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in several]
        for kind, several in names.items()
    }
    nodes = [
        helper.make_node("Add", [*names["input"]], ["y"]),
        helper.make_node("Identity", ["y"], ["state_next.a.tail"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", values["input"], values["output"]))
    onnx.save(model, tmp_path / "x.onnx")
    assert inspect(tmp_path / "x.onnx").data["state"] == ()  # names alone say nothing
    helper.set_model_props(model, {STATE_KEY: "{}"})
    onnx.save(model, tmp_path / "x.onnx")
    report = inspect(tmp_path / "x.onnx")
    assert report.data["state"] == (("a.tail", "FLOAT[2]"),)
    assert "state_next.NAME" in shown(report)


def test_tensors_of_any_origin(tmp_path):
    save_file({"w": torch.ones(2, 3)}, tmp_path / "x.safetensors", {"format": "pt"})
    page = shown(inspect(tmp_path / "x.safetensors"))
    assert "a .safetensors file: 1 tensor" in page
    assert "F32 2x3" in page
    assert "format  pt" in page


def test_a_damaged_file(dump):
    content = bytearray(dump.read_bytes())
    content[-1] ^= 1
    dump.write_bytes(content)
    with pytest.raises(UsageError, match="not those that were written"):
        inspect(dump)


@pytest.fixture
def model(tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_graph_is_drawn_on_demand(model, tmp_path):
    assert "--svg PICTURE.svg" in inspect(model).next_steps[0]
    report = inspect(model, tmp_path / "m.svg")
    assert report.next_steps == (f"open {tmp_path / 'm.svg'} in a browser",)
    assert ">Abs</text>" in (tmp_path / "m.svg").read_text()


def test_only_a_graph_is_drawn(dump, model, tmp_path):
    with pytest.raises(UsageError, match="--svg draws the graph of an ONNX model"):
        inspect(dump, tmp_path / "m.svg")
    assert not (tmp_path / "m.svg").exists()
    with pytest.raises(UsageError, match="cannot write"):
        inspect(model, tmp_path / "no" / "m.svg")


def test_a_dump_is_known_by_the_name_the_dumper_gives_it(tmp_path):
    assert _DUMP == DOCUMENT
    with open_dump(tmp_path / "x.onnx") as writer:
        writer.add("a", torch.ones(3))
    assert inspect(tmp_path / "x.onnx").data["kind"] == "dump"


@pytest.mark.parametrize("options", [[], ["--svg", "m.svg", "--json", "m.json"]])
def test_a_model_is_inspected_without_torch(model, options, tmp_path):
    code = (
        "import sys\n"
        "from torchferry.cli.main import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "inspect", str(model), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr
    assert "an ONNX model: 1 node" in done.stdout


def test_words_show_what_torchferry_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = inspect(Path("zoo"))
    assert report.title == "inspect zoo"
    (tmp_path / "zoo").mkdir()
    with pytest.raises(UsageError):
        inspect(Path("zoo"))
