import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from torchferry.dumper.safetensors_file import open_safetensors, stored_tensors
from torchferry.dumper.store import open_dump, read_dump
from torchferry.errors import UsageError


def dumped(path, **values):
    with open_dump(path) as dump:
        for name, value in values.items():
            dump.add(name, value)
    return path


def test_the_library_reads_it(tmp_path):
    odd = torch.ones(3, dtype=torch.bool)
    half = torch.rand(2, 3).to(torch.bfloat16)
    path = dumped(tmp_path / "x.safetensors", a=odd, b={"c": half}, d=torch.zeros(0, 4), e=7)
    found = load_file(path)
    assert found.keys() == {"a", "b.c", "d"}
    assert torch.equal(found["a"], odd)
    assert torch.equal(found["b.c"], half)
    assert found["d"].shape == (0, 4)


def test_what_the_format_lacks_is_bits_or_pairs(tmp_path):
    path = dumped(
        tmp_path / "x.safetensors",
        a=torch.tensor([1 + 2j]),
        b=torch.zeros(2, dtype=torch.float8_e5m2fnuz),
    )
    found = load_file(path)
    assert found["a"].tolist() == [[1, 2]]
    assert found["b"].dtype is torch.uint8
    with safe_open(path, "pt") as file:
        assert "bits" in file.metadata()["torchferry.note"]


@pytest.mark.parametrize("count", [1, 400])
def test_headers_of_every_length(count, tmp_path):
    """Small files have no room left over; long headers do not fit into what was kept free."""
    values = {f"{'x' * 100}{n}": torch.full((1000,), n) for n in range(count)}
    path = dumped(tmp_path / "x.safetensors", **values)
    found = load_file(path)
    assert all(torch.equal(found[name], value) for name, value in values.items())
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert header % 8 == 0
    assert path.stat().st_size == 8 + header + 8000 * count
    assert read_dump(path).keys() == values.keys()


def test_a_large_file_is_not_written_twice(tmp_path):
    path = dumped(tmp_path / "x.safetensors", a=torch.ones(2**18))
    assert path.stat().st_size == 2**20 + 2**16
    assert torch.equal(load_file(path)["a"], torch.ones(2**18))


def test_any_file(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.ones(2, 3)}, path, {"format": "pt"})
    tensors, metadata = stored_tensors(path)
    assert (tensors["w"].dtype, tensors["w"].shape) == ("F32", (2, 3))
    assert metadata == {"format": "pt"}
    with pytest.raises(UsageError, match="holds no 'w' of 23 bytes"):
        open_safetensors(path).fetch("w", 23)
    assert open_safetensors(path).fetch("w", 24).numel() == 24


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 99]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        3,
    ],
)
def test_headers_that_cannot_be(tensor, tmp_path):
    path = tmp_path / "x.safetensors"
    header = json.dumps({"x": tensor}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UsageError, match=r"no \.safetensors file"):
        stored_tensors(path)
