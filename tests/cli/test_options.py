"""What several commands take reads alike in each."""

import pytest

from torchferry.cli.main import main
from torchferry.cli.options import Dtype, repeated


@pytest.mark.parametrize("command", ["capture", "diagnose", "dump", "export", "observe", "sweep"])
def test_an_unknown_dtype_is_told_with_those_there_are(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = ["-o", str(tmp_path / "out")] if command in ("dump", "export") else []
    arguments = ["torchferry", command, "zoo:mlp", *out, "--dtype", "int3"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "int3" in told
    assert all(dtype in told for dtype in Dtype)
    assert list(tmp_path.iterdir()) == []


CODE = """
import torch
from torch import nn

def model(): return nn.Linear(4, 2)
def make(rows): return (torch.rand(rows, 4),)
listed = [(torch.rand(2, 4),), (torch.rand(3, 4),)]
def seeded(rows, seed=0): return (torch.rand(rows, 4),)
"""


def run(command, *words, monkeypatch, capsys):
    """Exit code and output of a command on a model of the user's."""
    monkeypatch.setattr("sys.argv", ["torchferry", command, "mine.py:model", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr()
    return stopped.value.code, told.out + told.err


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)


@pytest.mark.parametrize("command", ["capture", "diagnose", "export", "observe"])
@pytest.mark.parametrize("name", ["make", "listed"])
def test_inputs_may_be_a_function_of_sizes_or_a_list(command, name, mine, monkeypatch, capsys):
    words = ["-o", "out"] if command == "export" else []
    code, told = run(command, "--inputs", f"mine.py:{name}", *words,
                     monkeypatch=monkeypatch, capsys=capsys)  # fmt: skip
    assert code == 0, told
    assert command == "diagnose" or ("rows" if name == "make" else "batch_size") in told


@pytest.mark.parametrize("command", ["capture", "diagnose", "export", "observe"])
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("rows=8..4", "the range ends below its begin, 8"),
        ("height=4", "no dimension or integer that varies is called 'height'. Known: rows"),
    ],
)
def test_a_mistake_in_sizes_is_wrong_usage(command, sizes, message, mine, monkeypatch, capsys):
    words = ["-o", "out"] if command == "export" else []
    code, told = run(command, "--inputs", "mine.py:make", "--sizes", sizes, *words,
                     monkeypatch=monkeypatch, capsys=capsys)  # fmt: skip
    assert code == 2
    assert message in " ".join(told.split())


def test_sizes_that_are_stated_are_shown(mine, monkeypatch, capsys):
    words = ["--inputs", "mine.py:make", "--sizes", "rows=2..8:2", "-o", "out"]
    code, told = run("export", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "stated as 2..8:2" in told


def test_a_parameter_that_changes_nothing_is_wrong_usage(mine, monkeypatch, capsys):
    code, told = run("export", "--inputs", "mine.py:seeded", "-o", "out",
                     monkeypatch=monkeypatch, capsys=capsys)  # fmt: skip
    assert code == 2
    assert "mine.py:seeded: its parameter seed changes no size" in " ".join(told.split())


def test_the_command_to_repeat_has_the_sizes():
    assert repeated("m.pt2", "f.py:make", None, "n=1..4") == (
        "m.pt2 --inputs f.py:make --sizes n=1..4"
    )
