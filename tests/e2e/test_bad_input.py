"""Bad input: one clear sentence, the right exit code, and the earlier output as it was."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir
import pytest

import torchferry as tf
from torchferry.cli.main import main
from torchferry.exporter.export import export

CODE = '''
import os, pathlib, signal, sys, time
import torch
from torch import nn

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 512)
        self.large = nn.Linear(512, 1024)
    def forward(self, x):
        return self.large(self.linear(x))

class Picky(nn.Module):
    def forward(self, x):
        if x.shape[0] > 4:
            raise ValueError("takes four rows,\\nnot more")  # here
        return x * 2

class Decides(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            self.seen = True
        return x * 2

class Eigen(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x @ x.T)

SETS = [(torch.rand(3, 4),), (torch.rand(5, 4),)]
def plain(): return Plain(), SETS
def alone(): return Plain()
def picky(): return Picky(), SETS
def decides(): return Decides(), SETS
def eigen(): return Eigen(), SETS
def misnamed(): return Plain(), [{"x": SETS[0][0]}, {"y": SETS[0][0]}]
def once(): return Plain(), SETS[:1]
def boom(): raise RuntimeError("no weights today")  # boom
def leaves(): sys.exit("not like this")
def text(): return "a model"
def takes(path): return Plain(), SETS
def one(): return SETS[:1]
def wrong(): return 7
def fails(): return 1 / 0

class Slow(nn.Module):
    def forward(self, x):
        pathlib.Path("running").touch()
        time.sleep(60)
        return x

def interruptible():
    # Where tests run in the background Ctrl-C is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

def slow():
    interruptible()
    return Slow(), SETS

def interrupted():
    """Ctrl-C as the second file is being written into the hidden folder beside OUT."""
    interruptible()
    opened = []
    def listen(event, args):
        if event == "open" and isinstance(args[1], str) and set("wx") & set(args[1]):
            folder = pathlib.Path(args[0]).absolute().parent
            if folder.parent == pathlib.Path.cwd() and folder.name.startswith("."):
                opened.append(args[0])
                if len(opened) == 2:
                    pathlib.Path("running").write_text(" ".join(os.listdir(folder)))
                    os.kill(os.getpid(), signal.SIGINT)
    sys.addaudithook(listen)
    return Plain(), SETS
'''


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory: the user's code, and an earlier export in ``out``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delenv("TORCHFERRY_DEBUG", raising=False)
    Path("bad.py").write_text(CODE)
    Path("out").mkdir()
    for name in ("model.onnx", "model.onnx_data", "report.html"):
        Path("out", name).write_text(f"earlier {name}")
    yield tmp_path
    for name in ("bad", "torchferry_user_bad"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process."""

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["torchferry", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert isinstance(stop.value.code, int)
        return Ran(stop.value.code, *capsys.readouterr())

    return run


def content() -> dict[str, str]:
    """Every file and folder in the current directory, hidden ones too, but for the code's."""
    found = {p.as_posix(): p for p in Path().rglob("*") if "__pycache__" not in p.parts}
    return {
        name: p.read_text("latin-1") if p.is_file() else "a folder"
        for name, p in found.items()
        if name not in ("bad.py", "running")
    }


EARLIER = {
    "out": "a folder",
    "out/model.onnx": "earlier model.onnx",
    "out/model.onnx_data": "earlier model.onnx_data",
    "out/report.html": "earlier report.html",
}


def assert_refused(ran: Ran, code: int, *said: str) -> None:
    """One message on stderr, short, without a traceback; nothing was changed or left behind."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("torchferry: ")
    assert ran.err.count("\n") <= 12
    assert "Traceback" not in ran.err
    for text in said:
        assert text in ran.err
    assert content() == EARLIER


MISNAMED = (
    "do not fit Plain.forward: missing a required argument: 'x'\n"
    "  forward(x)\n  given ((),dict(y:T1s3x4))"
)
PICKY = (
    "bad:picky, run on input set 2 of 2, ((T1s5x4,),{{}}), raised ValueError: takes four rows, "
    "not more\n  at {bad}:{here}"
)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        # The model.
        ("nothing.pt2", 2, "there is no file nothing.pt2"),
        ("models/mine", 2, "there is no file or folder 'models/mine'"),
        ("zoo:tiny-lm", 2, "the zoo has no model 'tiny-lm'; did you mean tiny-llm"),
        ("tiny-llm", 2, "did you mean zoo:tiny-llm?"),
        ("out", 2, "out"),
        ("bad.py", 2, "bad.py is no model that torchferry reads; give zoo:NAME"),
        ("bda:plain", 2, "there is no module 'bda'"),
        ("bad:plian", 2, "bad has no 'plian'; did you mean plain"),
        ("bad:boom", 2, "bad:boom raised RuntimeError: no weights today\n  at {bad}:{boom}"),
        ("bad:leaves", 2, "bad:leaves raised SystemExit: not like this"),
        ("bad:text", 2, "bad:text returned a str; expected a torch.nn.Module"),
        ("bad:takes", 2, "bad:takes takes (path), and it is called with no arguments"),
        # Its inputs.
        ("bad:picky", 2, PICKY),
        ("bad:misnamed", 2, MISNAMED),
        ("bad:once", 2, "bad:once gave 1 input set, and 2 or more of different sizes are needed"),
        ("bad:alone --inputs bad.py:one", 2, "--inputs bad.py:one gave 1 input set"),
        ("bad:alone --inputs no.py:one", 2, "there is no file no.py"),
        ("bad:alone --inputs bad.py:none", 2, "bad.py has no 'none'; did you mean one"),
        ("bad:alone --inputs bad.py", 2, "--inputs takes FILE.py:NAME"),
        ("bad:alone --inputs bad.py:wrong", 2, "--inputs bad.py:wrong gave int; expected a list"),
        ("bad:alone --inputs bad.py:fails", 2, "bad.py:fails raised ZeroDivisionError"),
        # Options.
        ("bad:plain --opset 7", 2, "cannot write opset 7: choose one from 18 to "),
        ("bad:plain --json no/r.json", 2, "cannot write no/r.json: no is no folder"),
        # What the model does.
        ("bad:decides", 3, "the values of a tensor decide what the code does, at {bad}:"),
        ("bad:eigen", 3, "aten.linalg_eig.default (1x)"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_and_where(run: Run, words: str, code: int, said: str) -> None:
    lines = {
        mark: next(n for n, text in enumerate(CODE.splitlines(), 1) if text.endswith(f"# {mark}"))
        for mark in ("here", "boom")
    }
    ran = run("export", *words.split(), "-o", "out", "--force")
    assert_refused(ran, code, said.format(bad=Path("bad.py").resolve(), **lines))


def test_onnxruntime_that_fails_is_4(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: ir.Model, patterns: str, **_: object) -> ir.Model:
        model.graph.node(0).op_type = "NoSuchOperator"
        return model

    monkeypatch.setattr(sys.modules[export.__module__], "optimize", spoil)
    ran = run("export", "bad:plain", "-o", "out", "--force")
    assert_refused(ran, 4, "onnxruntime cannot load", "NoSuchOperator")


@pytest.mark.parametrize(
    "option", [("--dtype", "fp8"), ("--target", "tpu"), ("--exporter", "x"), ("--opset", "x")]
)
def test_a_word_that_is_no_choice_is_wrong_usage(run: Run, option: tuple[str, str]) -> None:
    ran = run("export", "bad:plain", "-o", "out", "--force", *option)
    assert (ran.code, ran.out) == (2, "")
    assert f"Invalid value for '{option[0]}'" in ran.err
    assert "Traceback" not in ran.err
    assert content() == EARLIER


# The output folder -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-o out", "out exists; give --force to replace it"),
        ("-o bad.py", "bad.py is a file; give a folder"),
        ("-o bad.py/out", "cannot write bad.py/out: Not a directory"),
        ("-o out/model.onnx/deep/out", "cannot write out/model.onnx/deep/out: Not a directory"),
    ],
)
def test_an_output_that_cannot_be_used(run: Run, words: str, said: str) -> None:
    # The factory raises: what is wrong with the folder is told before any work is done.
    assert_refused(run("export", "bad:boom", *words.split()), 2, said)


def test_a_foreign_file_is_never_replaced(run: Run) -> None:
    Path("out/thesis.tex").write_text("years of work")
    ran = run("export", "bad:boom", "-o", "out", "--force")
    assert (ran.code, ran.out) == (2, "")
    assert "out holds thesis.tex, which no export wrote, and is not replaced" in ran.err
    assert content() == {**EARLIER, "out/thesis.tex": "years of work"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(run: Run, folder: Path) -> None:
    folder.chmod(0o555)
    try:
        assert_refused(run("export", "bad:boom", "-o", "new"), 2, "cannot write new: Permission")
    finally:
        folder.chmod(0o755)


def test_a_disk_that_is_full(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_bytes(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    ran = run("export", "bad:plain", "-o", "out", "--force")
    assert_refused(ran, 2, "cannot write out: No space left on device")


@pytest.fixture
def small_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current directory on a file system of 1 MiB."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    try:
        (disk / "out").mkdir()
        for name in ("bad.py", *(name for name in EARLIER if name != "out")):
            (disk / name).write_bytes((folder / name).read_bytes())
        monkeypatch.chdir(disk)
        yield
    finally:
        monkeypatch.chdir(folder)
        subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk: None, run: Run) -> None:
    ran = run("export", "bad:plain", "-o", "out", "--force")
    assert_refused(ran, 2, "cannot write out: No space left on device")


# As a process of its own -----------------------------------------------------------------------


SCRIPT = str(Path(sys.executable).with_name("torchferry"))
MODULE = (sys.executable, "-m", "torchferry")


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default", **environment},
    )


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_while_the_model_runs(folder: Path) -> None:
    process = start(SCRIPT, "export", "bad:slow", "-o", "out", "--force")
    wait_for(Path("running"), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert_refused(Ran(process.returncode, out, err), 130, "interrupted")


@pytest.mark.slow
def test_ctrl_c_while_files_are_written(folder: Path) -> None:
    process = start(*MODULE, "export", "bad:interrupted", "-o", "out", "--force")
    out, err = process.communicate(timeout=60)
    assert Path("running").read_text()  # something had been written when the signal came
    assert_refused(Ran(process.returncode, out, err), 130, "interrupted")


@pytest.mark.slow
def test_a_reader_who_has_enough_is_no_fault(folder: Path) -> None:
    process = start(*MODULE, "export", "zoo:mlp", "-o", "new")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 0
    assert tf.load("new").path == Path("new/model.onnx")


@pytest.mark.slow
def test_what_is_printed_where_nobody_looks_is_plain(folder: Path) -> None:
    process = start(SCRIPT, "export", "zoo:mlp", "-o", "new", PYTHONIOENCODING="utf-8")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("✓ OK: zoo:mlp: 1 output equals PyTorch's at ")
    assert "\x1b" not in out
    assert "\r" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_debug_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHFERRY_DEBUG", "1")
    ran = run("export", "bad:boom", "-o", "new")
    assert ran.code == 2
    assert 'raise RuntimeError("no weights today")' in ran.err
    assert ran.err.splitlines()[-2].startswith("torchferry: bad:boom raised RuntimeError")
