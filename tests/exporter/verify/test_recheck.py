from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchferry as tf
from torchferry.errors import UsageError
from torchferry.exporter.verify.recheck import check_file

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.scale = scale

    def forward(self, x):
        if x.shape[0] % 2:
            return self.linear(x) * self.scale + 1
        return self.linear(x) * self.scale

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen = self.seen + x.sum()
        return x + self.seen

def make(scale=1.0):
    torch.manual_seed(0)
    return Net(scale).eval(), [(torch.rand(2, 4),), (torch.rand(6, 4),)]

def changed():
    return make(1.01)

def counting():
    return Counts(), [(torch.rand(2, 4),), (torch.rand(6, 4),)]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of models, and the export of the first of them."""
    folder = tmp_path_factory.mktemp("recheck")
    (folder / "models.py").write_text(SOURCE, "utf-8")
    space: dict[str, object] = {}
    torch.manual_seed(0)
    exec(compile(SOURCE, str(folder / "models.py"), "exec"), space)  # noqa: S102  # the text above
    model, sets = space["make"]()  # type: ignore[operator]  # a function of the text above
    program = tf.export(model, sets)
    assert program.report.ok, program.report
    program.save(folder / "model.onnx")
    return folder


def test_the_file_of_the_same_model_is_equal_where_it_was_proven(folder: Path) -> None:
    report = check_file(f"{folder}/models.py:make", folder / "model.onnx", progress=False)
    assert report.ok, report
    (batch,) = report.data["dimensions"]
    assert batch["status"] == "verified where"
    assert not any(size % 2 for size in batch["agreed"])  # odd sizes are outside its condition
    assert report.data["worst"] < 1e-5


def test_a_model_that_changed_is_not_the_file_any_longer(folder: Path) -> None:
    report = check_file(f"{folder}/models.py:changed", folder, progress=False)
    assert not report.ok
    (problem,) = report.problems
    assert "differs: at batch_size=2; batch_size=6" in problem
    assert any("torchferry compare" in step for step in report.next_steps)


def test_a_model_of_other_arguments_is_a_problem_and_no_crash(folder: Path) -> None:
    report = check_file("zoo:lstm", folder, progress=False)
    assert not report.ok
    assert "has no input for argument" in report.problems[0]


def test_state_and_foreign_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model at"):
        check_file("zoo:mlp", tmp_path / "none.onnx", progress=False)
    space: dict[str, object] = {}
    exec(compile(SOURCE, str(folder / "models.py"), "exec"), space)  # noqa: S102  # the text above
    model, sets = space["counting"]()  # type: ignore[operator]  # a function of the text above
    tf.export(model, sets, state="lift").save(tmp_path / "state.onnx")
    with pytest.raises(UsageError, match="holds lifted state"):
        check_file(f"{folder}/models.py:counting", tmp_path / "state.onnx", progress=False)
