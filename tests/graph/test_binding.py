from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import FakeTensorMode

import torchferry as tf
from torchferry.errors import UsageError
from torchferry.graph import bind_weights, io
from torchferry.graph.binding import stored_weights
from torchferry.sources.mapped import map_file


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(30, 20)
        self.inner = torch.nn.Linear(20, 20)
        self.head = torch.nn.Linear(20, 30, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(20), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.inner(self.embed(ids)) * self.scale)
        return result


IDS = torch.randint(0, 30, (3, 7), generator=torch.Generator().manual_seed(0))
SCALE = {"scale": np.ones(20, np.float32)}


@pytest.fixture
def real() -> Tied:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tied().eval()


def on_meta() -> ir.Model:
    with torch.device("meta"):
        model, ids = Tied().eval(), torch.zeros(2, 5, dtype=torch.int64)
    shapes = {"ids": {0: "batch", 1: "length"}}
    return tf.to_onnx(model, (), {"ids": ids}, dynamic_shapes=shapes).model


def weights(real: Tied, prefix: str = "") -> dict[str, torch.Tensor]:
    """As save_pretrained stores them: a tied weight once."""
    kept = {name: t for name, t in real.state_dict().items() if name != "head.weight"}
    return {prefix + name: tensor.clone() for name, tensor in kept.items()}


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("copied", [True, False])
def test_a_model_without_weights_gets_those_of_a_checkpoint(
    tmp_path: Path, real: Tied, prefix: str, copied: bool
) -> None:
    folder, out = tmp_path / "checkpoint", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    save_file(weights(real, prefix), folder / "w.safetensors")
    model = on_meta()
    regions = bind_weights(model, folder, values=SCALE)
    assert [r.path.name for r in regions] == ["w.safetensors"]
    io.save(model, out / "model.onnx", regions=() if copied else regions)
    named = {"model.onnx", "model.onnx_data" if copied else "w.safetensors"}
    assert {p.name for p in out.iterdir()} == named
    with torch.no_grad():
        assert torch.allclose(tf.load(out)(ids=IDS), real(IDS), atol=1e-6)


def test_fake_tensors_are_weights_without_data(tmp_path: Path) -> None:
    with FakeTensorMode():
        linear, x = torch.nn.Linear(30, 40), torch.rand(2, 30)
    model = tf.to_onnx(linear, (x,)).model
    with pytest.raises(UsageError, match="has none for weight, bias"):
        io.save(model, tmp_path / "model.onnx")
    tensors = {"weight": torch.randn(40, 30), "bias": torch.randn(40)}
    save_file(tensors, tmp_path / "w.safetensors")
    bind_weights(model, tmp_path)
    io.save(model, tmp_path / "model.onnx")
    x = torch.rand(2, 30)
    expected = torch.nn.functional.linear(x, tensors["weight"], tensors["bias"])
    assert torch.allclose(tf.load(tmp_path)(x), expected, atol=1e-5)


def test_what_is_not_found_stays_without_data_and_is_named(tmp_path: Path, real: Tied) -> None:
    save_file(weights(real), tmp_path / "w.safetensors")
    model = on_meta()
    bind_weights(model, tmp_path)
    with pytest.raises(UsageError, match="has none for scale: bind"):
        io.save(model, tmp_path / "model.onnx")


def test_other_names_are_given(tmp_path: Path, real: Tied) -> None:
    stored = {name.upper(): tensor for name, tensor in weights(real).items()}
    save_file(stored, tmp_path / "w.safetensors")
    model = on_meta()
    names = {name: name.upper() for name in ("inner.weight", "inner.bias")}
    names |= dict.fromkeys(("embed.weight", "head.weight"), "EMBED.WEIGHT")
    bind_weights(model, tmp_path, names=names, values=SCALE)
    io.save(model, tmp_path / "model.onnx")
    with torch.no_grad():
        assert torch.allclose(tf.load(tmp_path)(ids=IDS), real(IDS), atol=1e-6)
    with pytest.raises(UsageError, match=r"holds no 'X', which inner\.bias was to be bound to"):
        bind_weights(on_meta(), tmp_path, names={"inner.bias": "X"})


@pytest.mark.parametrize(
    ("tensor", "told"),
    [(torch.ones(21), r"as F32 \[21\]"), (torch.ones(20, dtype=torch.float16), r"as F16 \[20\]")],
)
def test_a_misfit_is_refused(tmp_path: Path, real: Tied, tensor: torch.Tensor, told: str) -> None:
    save_file({**weights(real), "inner.bias": tensor}, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=rf"'inner\.bias' {told}.*wants FLOAT \[20\]"):
        bind_weights(on_meta(), tmp_path, values=SCALE)


def test_a_value_of_another_type_is_refused(tmp_path: Path, real: Tied) -> None:
    save_file(weights(real), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"given for scale is float64 \[20\].*wants FLOAT"):
        bind_weights(on_meta(), tmp_path, values={"scale": np.ones(20)})


def test_headers_tell_where_the_tensors_lie(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bool),
               "none": torch.zeros(0, 4), "number": torch.tensor(7)}  # fmt: skip
    save_file(tensors, tmp_path / "w.safetensors", metadata={"format": "pt"})
    found = stored_weights(tmp_path)
    content = (tmp_path / "w.safetensors").read_bytes()
    for name, tensor in tensors.items():
        place = found[name]
        assert place.shape == tuple(tensor.shape)
        part = content[place.offset : place.offset + place.length]
        assert part == tensor.numpy().tobytes()
    mapped = map_file(tmp_path / "w.safetensors").tensors
    assert all(torch.equal(mapped[name], tensor) for name, tensor in tensors.items())


def test_bad_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no weights in \*\.safetensors"):
        stored_weights(tmp_path)
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.ones(300)}, path)
    whole = path.read_bytes()
    for content in (b"", b"abc", whole[:-1], whole[:40], (2**63).to_bytes(8, "little") + b"{}",
                    whole.replace(b"[300]", b"[301]")):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(UsageError, match="file, or it is cut short"):
            stored_weights(tmp_path)
    path.write_bytes(whole)
    (tmp_path / "x.safetensors").write_bytes(whole)
    with pytest.raises(UsageError, match=r"x\.safetensors both hold 'a'"):
        stored_weights(tmp_path)


def test_torch_is_not_loaded() -> None:
    code = "import sys, torchferry.graph.binding; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
