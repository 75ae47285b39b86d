from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import typer
from typer.testing import CliRunner

import torchferry
from torchferry import comparer
from torchferry.cli.commands.compare import compare
from torchferry.cli.main import app as whole
from torchferry.deployer.manifest import write_manifest
from torchferry.errors import UsageError
from torchferry.sources import source as sources
from torchferry.sources.factory import make_model

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.head = torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(x))


def made():
    return Net().eval(), [(torch.linspace(0, 1, 4 * n).reshape(n, 4),) for n in (2, 5)]


def one():
    return [{"x": torch.ones(3, 4).cumsum(0).cumsum(1)}]
"""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(compare)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the room below, in the place of comparing."""
    given: dict[str, Any] = {}

    class _StopError(Exception):
        pass

    def find(model: object, onnx: object, inputs: object, **options: Any) -> None:
        given.update(options, reference=model, onnx=onnx, sets=inputs)
        raise _StopError

    def load(text: str, **options: Any) -> Any:
        given.update(options, model=text)
        return sources.Source(text, "the module", ["a set"])

    monkeypatch.setattr(comparer, "compare", find)
    monkeypatch.setattr(sources, "load_source", load)
    return given


def test_options_have_defaults(app: typer.Typer, told: dict[str, Any]) -> None:
    CliRunner().invoke(app, ["zoo:mlp", "model.onnx"])
    assert callable(told.pop("progress"))
    assert told == {
        "model": "zoo:mlp", "inputs": None, "sizes": None, "dtype": None,
        "least": 0, "reference": "the module",
        "onnx": Path("model.onnx"), "sets": ["a set"], "feed": "own", "against": "program",
        "atol": None, "rtol": None, "level": "none", "providers": None, "keep": None, "cut": None,
        "bisect": False,
    }  # fmt: skip


def test_options_are_handed_on_as_plain_values(app: typer.Typer, told: dict[str, Any]) -> None:
    words = [
        "m",
        "o.onnx",
        "--inputs",
        "f.py:sets",
        "--sizes",
        "n=1..4",
        "--feed",
        "torch",
        "--against",
        "eager",
    ]
    words += ["--dtype", "fp16"]
    words += ["--cut", "first.onnx", "--atol", "0.5", "--rtol", "0.25", "--level", "all"]
    words += ["--provider", "A", "--provider", "B", "--bisect", "--keep", "v.safetensors"]
    CliRunner().invoke(app, words)
    del told["progress"]
    assert told == {
        "model": "m", "inputs": "f.py:sets", "sizes": "n=1..4", "dtype": "fp16", "least": 0,
        "reference": "the module", "onnx": Path("o.onnx"), "sets": ["a set"], "feed": "torch",
        "against": "eager",
        "atol": 0.5, "rtol": 0.25, "level": "all", "providers": ["A", "B"],
        "cut": Path("first.onnx"), "bisect": True, "keep": Path("v.safetensors"),
    }  # fmt: skip


def test_the_program_of_a_pt2_file_is_the_reference(
    app: typer.Typer, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources.Source("m.pt2", "the module", ["a set"], "the program")
    monkeypatch.setattr(sources, "load_source", lambda *args, **options: source)
    CliRunner().invoke(app, ["m.pt2", "o.onnx"])
    assert told["reference"] == "the program"


def test_an_onnx_reference_is_not_loaded_as_a_module(
    app: typer.Typer, told: dict[str, Any], tmp_path: Path
) -> None:
    CliRunner().invoke(app, ["a.onnx", "b.onnx"])
    assert (told["reference"], told["sets"]) == ("a.onnx", None)
    assert "model" not in told
    (tmp_path / "f.py").write_text(MODEL, "utf-8")
    CliRunner().invoke(app, ["a.onnx", "b.onnx", "--inputs", f"{tmp_path / 'f.py'}:one"])
    ((args, kwargs),) = told["sets"]
    assert args == ()
    assert kwargs["x"].shape == (3, 4)


# The whole command ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its export, and the same with a weight of its last layer off by 1%."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "net.py").write_text(MODEL, "utf-8")
    module, sets = make_model(f"{folder / 'net.py'}:made")
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    torchferry.to_onnx(module, sets[0], dynamic_shapes=shapes).save(folder / "right.onnx")
    model = onnx.load(folder / "right.onnx")
    weight = next(t for t in model.graph.initializer if "head" in t.name and len(t.dims) == 2)
    array = onnx.numpy_helper.to_array(weight) * 1.01
    weight.CopyFrom(onnx.numpy_helper.from_array(array.astype("float32"), weight.name))
    onnx.save(model, folder / "wrong.onnx")
    return folder


def run(*words: object) -> Any:
    return CliRunner().invoke(whole, ["compare", *map(str, words)])


def test_equal_models_exit_0(folder: Path) -> None:
    done = run(f"{folder / 'net.py'}:made", folder / "right.onnx")
    assert (done.exit_code, done.exception) == (0, None)
    assert "OK: all agree: 2 values, and 1 output" in done.stdout


def test_what_differs_is_named_and_exits_1(folder: Path, tmp_path: Path) -> None:
    files = ["--json", tmp_path / "r.json", "--html", tmp_path / "r.html"]
    cut = tmp_path / "first.onnx"
    done = run(f"{folder / 'net.py'}:made", folder / "wrong.onnx", "--cut", cut, *files)
    assert done.exit_code == 1
    text = " ".join(done.stdout.split())
    assert text.startswith("✗ FAILED: weight head.weight differs at [")
    assert "; of the values, the first of 2 values to differ is output, made by node_Gemm_1" in (
        text
    )
    data = json.loads((tmp_path / "r.json").read_text("utf-8"))["data"]
    assert [weight["name"] for weight in data["weights"]] == ["head.weight"]
    assert data["weights"][0]["wrong"] == data["weights"][0]["size"]
    assert data["suspects"] == ["node_Gemm_1"]
    assert data["values"][1]["layer"] == "head"
    assert cut.is_file()
    assert cut.with_suffix(".inputs.safetensors").is_file()
    assert 'data-verdict="failed"' in (tmp_path / "r.html").read_text("utf-8")


def test_two_files_are_compared_with_inputs_that_are_made_up(folder: Path) -> None:
    done = run(folder / "right.onnx", folder / "wrong.onnx")
    assert done.exit_code == 1
    assert "node_Gemm_1" in done.stdout
    assert run(folder / "right.onnx", folder / "right.onnx").exit_code == 0


def test_no_inputs_at_all_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("def sets():\n    return []\n", "utf-8")
    inputs = f"{tmp_path / 'none.py'}:sets"
    for model in (f"{folder / 'net.py'}:made", folder / "right.onnx"):
        done = run(model, folder / "right.onnx", "--inputs", inputs)
        assert isinstance(done.exception, UsageError)
        assert str(done.exception).startswith("an empty list of inputs: nothing would be compared")


def test_with_one_set_of_inputs(folder: Path) -> None:
    model = f"{folder / 'net.py'}:made"
    inputs = f"{folder / 'net.py'}:one"
    assert run(model, folder / "right.onnx", "--inputs", inputs).exit_code == 0
    assert run(model, folder / "wrong.onnx", "--inputs", inputs, "--rtol", "1").exit_code == 0
    assert run(folder / "right.onnx", folder / "wrong.onnx", "--inputs", inputs).exit_code == 1


@pytest.mark.parametrize(
    ("onnx_file", "says"),
    [("none.onnx", "there is no file"), ("right.onnx", r"input x of the ONNX model is .* 4\]")],
)
def test_what_does_not_fit_is_wrong_usage(folder: Path, onnx_file: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compare("zoo:mlp", folder / onnx_file)


def test_a_folder_that_an_export_wrote_is_a_reference(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "out"
    made.mkdir()
    (made / "model.onnx").write_bytes((folder / "right.onnx").read_bytes())
    done = run(made, made)
    assert done.exit_code == 0, done.output
    (made / "config.json").write_text("{}")
    assert run(made, made).exit_code != 0


@pytest.mark.parametrize("name", ["calls.safetensors", "calls"])
def test_a_dump_is_a_reference_without_the_model(folder: Path, tmp_path: Path, name: str) -> None:
    made = CliRunner().invoke(
        whole, ["dump", f"{folder / 'net.py'}:made", "-o", str(tmp_path / name)]
    )
    assert made.exit_code == 0, made.output
    done = run(tmp_path / name, folder / "right.onnx")
    assert (done.exit_code, done.exception) == (0, None)
    done = run(tmp_path / name, folder / "wrong.onnx")
    assert done.exit_code == 1
    assert "made by node_Gemm_1" in done.stdout


def test_kept_values_are_a_reference_for_another_onnxruntime(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "values.safetensors"
    right = folder / "right.onnx"
    assert run(right, right, "--keep", kept).exit_code == 0
    assert run(kept, right, "--level", "all").exit_code == 0
    assert run(kept, folder / "wrong.onnx").exit_code == 1


def test_two_sessions_of_onnxruntime_are_compared(folder: Path) -> None:
    right = folder / "right.onnx"
    done = run(right, right, "--level", "all", "--against", "basic")
    assert (done.exit_code, done.exception) == (0, None)
    with pytest.raises(UsageError, match="has no provider 'Other' here"):
        compare(str(right), right, against="Other")


def test_the_page_has_a_graph_to_look_around_in(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    run(f"{folder / 'net.py'}:made", folder / "wrong.onnx", "--html", page)
    text = page.read_text("utf-8")
    assert 'class="items"' in text
    assert "script-src" in text
    assert "<h2>Graph</h2>" in text


def test_a_model_is_compared_in_the_dtype_of_the_file(folder: Path, tmp_path: Path) -> None:
    module, sets = make_model(f"{folder / 'net.py'}:made")
    half = tmp_path / "half.onnx"
    torchferry.to_onnx(module.half(), tuple(x.half() for x in sets[0])).save(half)
    model = f"{folder / 'net.py'}:made"
    assert run(model, half, "--dtype", "fp16").exit_code == 0
    done = run(model, half)
    assert isinstance(done.exception, UsageError)
    assert "is torch.float16, and the inputs are torch.float32" in str(done.exception)
    assert "--dtype fp16" in str(done.exception)
    for file in (half, folder / "right.onnx"):
        done = run(file, folder / "right.onnx", "--dtype", "fp16")
        assert isinstance(done.exception, UsageError)
        assert str(done.exception) == f"{file} keeps its dtypes; leave out --dtype"


def test_that_a_model_was_put_in_eval_mode_is_told(folder: Path) -> None:
    text = (folder / "net.py").read_text("utf-8").replace("Net().eval()", "Net()")
    (folder / "training.py").write_text(text, "utf-8")
    done = run(f"{folder / 'training.py'}:made", folder / "right.onnx")
    assert done.exit_code == 0
    assert "the model came in training mode and was put in eval mode" in done.output
    assert "eval mode" not in run(f"{folder / 'net.py'}:made", folder / "right.onnx").output


def test_a_deployed_folder_stands_for_its_default_graph(
    app: typer.Typer, told: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model_q4.onnx").touch()
    (tmp_path / "config.json").touch()
    write_manifest(tmp_path, "decoder", ["onnx/model_q4.onnx", "onnx/model.onnx"])
    CliRunner().invoke(app, ["other.onnx", str(tmp_path)])
    assert told["onnx"] == tmp_path / "onnx/model_q4.onnx"
    CliRunner().invoke(app, [str(tmp_path), "other.onnx"])
    assert told["reference"] == str(tmp_path / "onnx/model_q4.onnx")
    (tmp_path / "onnx/encoder_model.onnx").touch()
    refused = CliRunner().invoke(app, ["other.onnx", str(tmp_path)]).exception
    assert "holds an encoder and a decoder, which are compared one by one" in str(refused)
