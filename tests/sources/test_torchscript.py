from __future__ import annotations

import inspect
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.exporter.export import export
from torchferry.sources import load_source, script_nodes
from torchferry.sources.torchscript import is_torchscript, load_torchscript


class Branches(nn.Module):
    """A branch on a number, an unrolled list of layers, a loop that appends, a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.register_buffer("shift", torch.ones(1))
        self.count = 3

    def forward(self, x: torch.Tensor, mode: int, scale: float = 2.0) -> dict[str, torch.Tensor]:
        rows, _ = x.shape
        if mode > 3:  # noqa: SIM108  (a node of its own)
            x = self.first(x)
        else:
            x = x + self.shift * scale
        for layer in self.layers:
            x = torch.relu(layer(x))
        columns = []
        for i in range(self.count):
            columns.append(x[:, i])  # noqa: PERF401  (a loop with a list that grows)
        return {"stacked": torch.stack(columns, 1).view(rows, -1), "twice": torch.cat([x, x], -1)}


class Sizes(nn.Module):
    """Arithmetic on sizes, types asked of tensors, a constant tensor, nested tuples."""

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        batch, length, width = x.size(0), x.size(1), x.size(2)
        positions = torch.arange(length, dtype=x.dtype, device=x.device)
        half = x[:, : (length + 1) // 2]
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0.0)
        heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
        weights = torch.softmax(heads @ heads.transpose(-2, -1) / float(width) ** 0.5, -1)
        joined = (weights @ heads).transpose(1, 2).reshape(batch, length, width)
        return joined + positions.view(1, -1, 1), (half.to(torch.float64), half.mean([1, 2]))


class Image(nn.Module):
    """What traces are made of: convolutions, normalization, sizes as tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.convolution(x)).relu()
        x = nn.functional.interpolate(x, size=(x.shape[2] * 2, x.shape[3] // 2))
        x = x.reshape(x.shape[0], 4, -1).transpose(1, 2)
        return self.head(x).sum(1) / x.shape[1]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(ids))[0]


class Pair(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        low, high = x.split([2, x.shape[-1] - 2], -1)
        return Pair(low * 2, torch.max(high, dim=-1)[0])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + x.sum()
        self.calls += 1
        return x + self.count + self.calls


def rows(batch: int) -> tuple[Any, ...]:
    return torch.rand(batch, 4), 5


def sequences(batch: int) -> tuple[Any, ...]:
    return torch.rand(batch, 3 + batch, 6), torch.rand(batch, 3 + batch) > 0.5


def pictures(batch: int) -> tuple[Any, ...]:
    return (torch.rand(batch, 3, 6 + batch, 2 * batch + 8),)


def tokens(batch: int) -> tuple[Any, ...]:
    return (torch.randint(0, 10, (batch, batch + 3)),)


def columns(batch: int) -> tuple[Any, ...]:
    return (torch.rand(batch, 7),)


Make = Callable[[int], tuple[Any, ...]]


def save(model: nn.Module, path: Path, example: tuple[Any, ...] | None = None) -> str:
    """Script a model, or trace it on an example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit says that it is deprecated
        model = model.eval()
        script = torch.jit.script(model) if example is None else torch.jit.trace(model, example)
        torch.jit.save(script, path)
    return str(path)


CASES: dict[str, tuple[Callable[[], nn.Module], Make, bool]] = {
    "scripted branches": (Branches, rows, False),
    "scripted sizes": (Sizes, sequences, False),
    "scripted image": (Image, pictures, False),
    "scripted recurrent": (Recurrent, tokens, False),
    "scripted named tuple": (Named, columns, False),
    "traced image": (Image, pictures, True),
    "traced sizes": (Sizes, sequences, True),
    "traced recurrent": (Recurrent, tokens, True),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[nn.Module, Make, str]:
    build, make, traced = CASES[request.param]
    torch.manual_seed(0)
    model = build()
    return model, make, save(model, tmp_path / "model.pt", make(3) if traced else None)


def test_the_steps_compute_what_the_model_does(case: tuple[nn.Module, Make, str]) -> None:
    model, make, text = case
    loaded = load_torchscript(text)
    assert type(loaded.model).__name__ == type(model).__name__
    expected_names = {name for name, _ in model.named_parameters()}
    assert {name for name, _ in loaded.model.named_parameters()} == expected_names
    for batch in (1, 2, 5):
        inputs = make(batch)
        with torch.no_grad():
            torch.testing.assert_close(
                loaded.model(*inputs), _plain(model(*inputs)), rtol=0, atol=0
            )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, tuple) else value


@pytest.mark.sample(3)
def test_the_export_is_verified_at_other_sizes(case: tuple[nn.Module, Make, str]) -> None:
    _, make, text = case
    report = export(load_torchscript(text).model, [(make(3), {}), (make(5), {})]).report
    assert report is not None
    assert report.ok, report.problems
    made = [one for one in report.data["checks"] if one["inputs"] == "made" and one["outputs"]]
    assert len(made) >= 2
    assert any(1 in one["sizes"].values() for one in made)
    assert all(one["status"].startswith("verified") for one in report.data["dimensions"])


def test_the_signature_is_that_of_the_model(tmp_path: Path) -> None:
    model = load_torchscript(save(Branches(), tmp_path / "m.pt")).model
    assert str(inspect.signature(model.forward)) == "(x, mode, scale=2.0)"
    x = torch.rand(2, 4)
    torch.testing.assert_close(model(x, mode=1), model(scale=2.0, mode=1, x=x))
    with pytest.raises(TypeError, match="mode"):
        model(x)


def test_a_module_of_the_archive_can_be_named(tmp_path: Path) -> None:
    text = save(Image(), tmp_path / "m.jit")
    model = load_torchscript(f"{text}:head").model
    assert model(torch.rand(3, 4)).shape == (3, 2)
    with pytest.raises(UsageError, match="no module 'heat' to call; it has head"):
        load_torchscript(f"{text}:heat")


def test_it_is_exported_by_name_with_the_inputs_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Image(), tmp_path / "m.pt")
    code = "import torch\ndef make(batch_size, height, width):\n"
    Path("sets.py").write_text(f"{code}    return (torch.rand(batch_size, 3, height, width),)\n")
    report = deliver("m.pt", tmp_path / "out", inputs="sets.py:make")
    assert report.ok, report.problems
    with pytest.raises(UsageError, match=r"forward takes \(x\).*\n?.*--inputs FILE.py"):
        load_source("m.pt")


def test_what_forward_writes_is_written(tmp_path: Path) -> None:
    loaded = load_torchscript(save(Counting(), tmp_path / "m.pt"))
    x = torch.ones(2)
    assert [float(loaded.model(x)[0]) for _ in range(2)] == [4.0, 7.0]


def test_nodes_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = save(Branches(), tmp_path / "m.pt")
    monkeypatch.delitem(script_nodes.FUNCTIONS, "prim::ListConstruct")
    monkeypatch.delitem(script_nodes.FUNCTIONS, "prim::DictConstruct")
    with pytest.raises(UsageError, match=r"uses prim::DictConstruct, prim::ListConstruct, which "):
        load_torchscript(text)


def test_steps_that_compute_something_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Sizes(), tmp_path / "m.pt")
    Path("sets.py").write_text(
        "import torch\nsets = [(torch.rand(b, b + 3, 6), None) for b in (2, 3)]\n"
    )
    assert len(load_source("m.pt", inputs="sets.py:sets").input_sets) == 2
    monkeypatch.setitem(script_nodes.FUNCTIONS, "aten::pow", lambda a, b: a * b)
    with pytest.raises(UsageError, match=r"m.pt was read wrong: on input set 1 torch.jit comp"):
        load_source("m.pt", inputs="sets.py:sets")


def test_a_pickle_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Linear(2, 2).state_dict(), "weights.pt")
    torch.save(nn.Linear(2, 2), "module.pt")
    Path("text.pt").write_text("PK")
    for name in ("weights.pt", "module.pt", "text.pt"):
        assert not is_torchscript(name)
        with pytest.raises(UsageError, match=f"{name} is no model that torchferry reads"):
            load_source(name)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pt"
    with (
        zipfile.ZipFile(save(Image(), tmp_path / "m.pt")) as whole,
        zipfile.ZipFile(path, "w") as damaged,
    ):
        for name in whole.namelist():
            damaged.writestr(name, whole.read(name).replace(b"def forward", b"xyz forward"))
    assert is_torchscript(str(path))
    with pytest.raises(UsageError, match="cannot be read as a TorchScript archive"):
        load_torchscript(str(path))
