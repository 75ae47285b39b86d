from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchferry.errors import UsageError
from torchferry.sources.mapped import checkpoint_files, map_file, mapped_tensors, paged_out

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
          torch.int8, torch.uint8, torch.int64, torch.bool]  # fmt: skip


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {str(dtype): torch.arange(6).view(2, 3).to(dtype) for dtype in DTYPES}
    tensors |= {"empty": torch.zeros(0, 5), "number": torch.tensor(2.5)}
    save_file(tensors, path)
    file = map_file(path)
    assert file.size == path.stat().st_size
    for name, tensor in tensors.items():
        found = file.tensors[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert found.view(-1).tolist() == tensor.view(-1).tolist()
        if tensor.numel():
            assert file.address <= found.data_ptr() < file.address + file.size
    storages = {t.untyped_storage().data_ptr() for t in file.tensors.values() if t.numel()}
    assert len(storages) == len(tensors) - 1


def test_writing_to_a_tensor_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(5)}, path)
    before = path.read_bytes()
    file = map_file(path)
    file.tensors["a"].mul_(3)
    assert path.read_bytes() == before
    assert map_file(path).tensors["a"].tolist() == [1.0] * 5


def test_a_tensor_at_an_odd_byte_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({
        "bits": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
    }).encode()  # fmt: skip
    content = torch.tensor([1.5, -2.0]).numpy().tobytes()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1\2\3" + content)
    file = map_file(path)
    assert file.tensors["a"].tolist() == [1.5, -2.0]
    assert file.tensors["a"].data_ptr() % 4 == 0


def test_what_cannot_be_mapped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(UsageError, match=r"'a' as F4.*use --weights copy"):
        map_file(path)
    path.write_bytes(path.read_bytes().replace(b'"F4"', b'"I8"'))
    with pytest.raises(UsageError, match="the bytes of 'a' do not fit its shape"):
        map_file(path)


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("x", "y"):
        save_file({"a": torch.ones(2), name: torch.ones(1)}, tmp_path / f"{name}.safetensors")
    files = [map_file(tmp_path / f"{name}.safetensors") for name in ("x", "y")]
    assert set(mapped_tensors(files[:1])) == {"a", "x"}
    with pytest.raises(UsageError, match=r"y\.safetensors and another file .* hold 'a'"):
        mapped_tensors(files)


def test_the_files_are_those_of_the_index(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has neither model\.safetensors nor"):
        checkpoint_files(tmp_path)
    for name in ("a", "b", "other"):
        save_file({name: torch.ones(1)}, tmp_path / f"{name}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    places = {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}
    index.write_text(json.dumps({"weight_map": places}))
    assert [p.name for p in checkpoint_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    (tmp_path / "other.safetensors").rename(tmp_path / "model.safetensors")
    assert [p.name for p in checkpoint_files(tmp_path)] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no index of weights"),
        ("[]", "is no index of weights"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "names 'gone.safetensors', which is no"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "names '../a.safetensors', which is no"),
    ],
)
def test_a_bad_index_is_told(tmp_path: Path, text: str, told: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(UsageError, match=told):
        checkpoint_files(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="others keep the pages")
def test_pages_that_were_read_leave_memory_and_what_was_written_stays(tmp_path: Path) -> None:
    save_file(
        {"weight": torch.ones(40_000_000, dtype=torch.int32)}, tmp_path / "model.safetensors"
    )
    file = map_file(tmp_path / "model.safetensors")
    weight = file.tensors["weight"]
    with paged_out():
        weight[3] = 7
        assert int(weight.sum()) == 40_000_006
        least = mapped_bytes()
        for _ in range(200):
            time.sleep(0.02)
            least = min(least, mapped_bytes())
            if least < 120e6:
                break
    assert least < 120e6
    assert int(weight[3]) == 7
    assert int(weight.sum()) == 40_000_006


def mapped_bytes() -> int:
    """Of the pages of model.safetensors, those that this process has in memory."""
    text = Path("/proc/self/smaps").read_text("utf-8")
    part = text.partition("model.safetensors")[2]
    return int(part.partition("Rss:")[2].split()[0]) * 1024
