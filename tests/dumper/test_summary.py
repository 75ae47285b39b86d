import dataclasses

import pytest
import torch
from safetensors.torch import save_file

from torchferry.dumper.store import (
    create_onnx_model_from_input_tensors,
    open_dump,
    read_dump,
    read_entries,
)
from torchferry.dumper.summary import DumpSummary, TensorsSummary, summarize
from torchferry.errors import UsageError
from torchferry.values import string_type


@pytest.mark.parametrize("name", ["x.onnx", "x.safetensors", "x"])
def test_a_dump(name, tmp_path):
    with open_dump(tmp_path / name) as dump:
        dump.add(("m", 0, "I"), ((torch.ones(20, 30),), {"mask": None, "n": 3}))
        dump.add(("m", 0, "O"), torch.tensor([1.0, float("nan")]))
    found = summarize(tmp_path / name)
    assert isinstance(found, DumpSummary)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert found.nbytes == sum(file.stat().st_size for file in files)
    first, second = found.entries
    assert first.key == ("m", 0, "I")
    assert first.type == "((T1s20x30,),dict(mask:None,n:int))"
    assert [(t.name, t.type, t.nbytes) for t in first.tensors] == [("0.0", "T1s20x30", 2400)]
    assert first.tensors[0].statistics.mean == 1
    assert second.tensors[0].name == ""
    assert second.tensors[0].statistics.nans == 1


def test_a_whole_value(tmp_path):
    create_onnx_model_from_input_tensors([torch.ones(2)], tmp_path / "x.onnx")
    assert [entry.key for entry in summarize(tmp_path / "x.onnx").entries] == [()]


def test_any_safetensors(tmp_path):
    save_file({"w": torch.ones(2, 3), "s": torch.tensor(1)}, tmp_path / "x.safetensors")
    found = summarize(tmp_path / "x.safetensors")
    assert isinstance(found, TensorsSummary)
    assert {(t.name, t.type, t.nbytes) for t in found.tensors} == {
        ("w", "F32 2x3", 24), ("s", "I64 scalar", 8),
    }  # fmt: skip


def test_what_is_none_of_these(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "y.onnx").write_text("x")
    for name in ("x.txt", "y.onnx", "no", "no.onnx", "no.safetensors"):
        with pytest.raises(UsageError):
            summarize(tmp_path / name)


@dataclasses.dataclass
class Gone:
    x: object
    y: object = None


def test_classes_that_are_not_found_are_told_by_name(tmp_path, monkeypatch):
    with open_dump(tmp_path / "x.safetensors") as dump:
        dump.add("a", {"y": Gone(torch.ones(2, 3))})
        dump.add("b", 1)
    monkeypatch.delitem(globals(), "Gone")
    found = summarize(tmp_path / "x.safetensors")
    assert [entry.type for entry in found.entries] == ["dict(y:Gone(x:T1s2x3,y:None))", "int"]
    assert found.entries[0].tensors[0].name == "y.x"


def test_an_entry_of_an_unknown_class_is_left_out(tmp_path, monkeypatch, caplog):
    with open_dump(tmp_path / "x.onnx") as dump:
        dump.add("a", torch.ones(1))
        dump.add("b", [Gone(torch.ones(2), 3)])
        dump.add("c", 4)
    monkeypatch.delitem(globals(), "Gone")
    assert [key for key, _ in read_entries(tmp_path / "x.onnx")] == ["a", "c"]
    assert "the entry b is left out" in caplog.text
    assert ":Gone is not found; import its module" in caplog.text
    with pytest.raises(UsageError, match="Gone is not found"):
        read_dump(tmp_path / "x.onnx")
    stood = dict(read_entries(tmp_path / "x.onnx", stand_ins=True))["b"]
    assert string_type(stood) == "#1[Gone(x:T1r1,y:int)]"
