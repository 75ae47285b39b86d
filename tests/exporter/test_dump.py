from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torchferry.dumper import read_dump
from torchferry.errors import UsageError
from torchferry.exporter.dump import STORAGE_LIMIT, dump
from torchferry.report.model import Table
from torchferry.zoo import build

MODEL = """
import torch
from torch import nn

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x, scale=None):
        y = self.inner(self.inner(x))
        x.zero_()
        return y if scale is None else y * scale

def twice():
    return Twice(), [((torch.ones(n, 4),), {"scale": torch.tensor(2.0)}) for n in (2, 3)]

def one():
    return [(torch.ones(5, 4),)]

def wrong():
    return [(torch.ones(5, 3),)]
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "dumped_twice.py").write_text(MODEL)
    return f"{tmp_path / 'dumped_twice.py'}:twice"


def tables(report):
    return {section.title: section.blocks[0] for section in report.sections}


@pytest.mark.parametrize("name", ["x.onnx", "x.safetensors", "x"])
def test_every_call_of_every_module_is_stored(model, name, tmp_path):
    report = dump(model, tmp_path / name)
    assert report.ok
    found = read_dump(tmp_path / name)
    assert [key for key in found if key[1] == 0 or key[0] == "inner"] == [
        ("", 0, "I"), ("inner", 0, "I"), ("inner", 0, "O"), ("inner", 1, "I"), ("inner", 1, "O"),
        ("", 0, "O"), ("inner", 2, "I"), ("inner", 2, "O"), ("inner", 3, "I"), ("inner", 3, "O"),
    ]  # fmt: skip
    (x,), kwargs = found["", 1, "I"]
    assert torch.equal(x, torch.ones(3, 4))  # as it was before the call changed it
    assert kwargs == {"scale": torch.tensor(2.0)}
    assert torch.equal(found["", 1, "O"], found["inner", 3, "O"] * 2)


def test_the_report(model, tmp_path):
    report = dump(model, tmp_path / "x.onnx")
    modules = tables(report)["Modules"]
    assert isinstance(modules, Table)
    # Two sets of 2 and 3 rows of 16 bytes, and a scale for each; inner is called twice a set.
    assert modules.rows == (("''", "Twice", 2, 4, "168 B"), ("'inner'", "Linear", 4, 8, "320 B"))
    assert report.verdict == f"12 values of 2 modules, 488 B, in the file {tmp_path / 'x.onnx'}"
    assert report.next_steps[0].startswith(f"torchferry inspect {tmp_path / 'x.onnx'}")
    data = json.loads(json.dumps(report.data))
    assert data["entries"][0] == {"key": ["", 0, "I"], "nbytes": 36}
    assert data["skipped"] == []


def test_only_the_modules_of_a_pattern(model, tmp_path):
    dump(model, tmp_path / "x.onnx", modules="in*")
    assert {key[0] for key in read_dump(tmp_path / "x.onnx")} == {"inner"}
    dump(model, tmp_path / "y.onnx", modules="")
    assert {key[0] for key in read_dump(tmp_path / "y.onnx")} == {""}
    with pytest.raises(
        UsageError, match="no module of Twice has a path like 'iner'; there are 'i"
    ):
        dump(model, tmp_path / "z.onnx", modules="iner")
    assert not (tmp_path / "z.onnx").exists()


def test_arguments_are_dropped(model, tmp_path):
    dump(model, tmp_path / "x.onnx", drop=["scale"])
    assert read_dump(tmp_path / "x.onnx")["", 0, "I"][1] == {}


def test_what_is_left_out_is_listed(model, tmp_path, caplog):
    report = dump(model, tmp_path / "x.onnx", storage_limit=40)
    assert not report.ok
    assert list(read_dump(tmp_path / "x.onnx")) == [("", 0, "I")]
    assert report.problems == (
        "11 values of 12 left out: raise --storage-limit, or choose fewer modules with --modules",
    )
    rows = tables(report)["Left out"].rows
    assert rows[0][0] == "('inner', 0, 'I')"
    assert len(rows) == len(report.data["skipped"]) == 11
    assert not caplog.records
    with pytest.raises(UsageError, match="-1 bytes is none"):
        dump(model, tmp_path / "y.onnx", storage_limit=-1)


def test_inputs_of_ones_own(model, tmp_path):
    sets = f"{tmp_path / 'dumped_twice.py'}:one"
    dump(model, tmp_path / "x.onnx", inputs=sets, dtype="bf16")
    found = read_dump(tmp_path / "x.onnx")
    assert found["", 0, "O"].shape == (5, 4)
    assert found["", 0, "O"].dtype == torch.bfloat16


def test_a_run_that_raises_leaves_what_came_before(model, tmp_path):
    with pytest.raises(UsageError, match="input set 1 of 1"):
        dump(model, tmp_path / "x.onnx", inputs=f"{tmp_path / 'dumped_twice.py'}:wrong")
    assert list(read_dump(tmp_path / "x.onnx")) == [("", 0, "I"), ("inner", 0, "I")]


def test_a_decoder_with_its_cache(tmp_path):
    report = dump("zoo:tiny-llm", tmp_path / "x.safetensors", modules="*self_attn")
    assert report.ok
    found = read_dump(tmp_path / "x.safetensors")
    names = {key[0] for key in found}
    assert names == {n for n, _ in build("tiny-llm").model.named_modules() if "self_attn" in n
                     and n.endswith("self_attn")}  # fmt: skip
    assert sum(report.data["entries"][n]["nbytes"] for n in range(len(found))) < STORAGE_LIMIT


def test_a_folder_that_is_in_use(model, tmp_path):
    with pytest.raises(UsageError, match="it is not empty"):
        dump(model, tmp_path)
