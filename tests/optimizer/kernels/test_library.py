from __future__ import annotations

import logging
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from torchferry.optimizer.kernels import library

needs_compiler = pytest.mark.skipif(library.compiler() is None, reason="no C compiler")
SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHFERRY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@needs_compiler
def test_a_source_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library.build_library(SOURCE)
    assert path is not None
    assert path.parent == folder / "kernels" == library.library_folder()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    monkeypatch.setattr(library.subprocess, "Popen", None)
    assert library.build_library(SOURCE) == path


@needs_compiler
def test_what_does_not_compile_is_told(caplog: Any, folder: Path) -> None:
    assert library.build_library("int answer(") is None
    assert "fails" in caplog.text
    assert list((folder / "kernels").iterdir()) == []


@needs_compiler
def test_a_compiler_that_takes_too_long_ends_with_what_it_started(
    caplog: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n", "utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(library, "compiler", lambda: str(slow))
    monkeypatch.setattr(library, "_DEADLINE", 0.5)
    assert library.build_library(SOURCE) is None
    assert f"{slow} fails" in caplog.text
    assert list((folder / "kernels").iterdir()) == []
    child = int((tmp_path / "pid").read_text("utf-8"))
    for _ in range(100):  # it is reaped by the system
        if not _runs(child):
            break
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"


@needs_compiler
def test_without_a_cache_it_is_kept_by_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHFERRY_CACHE", "0")
    path = library.build_library(SOURCE)
    assert path is not None
    assert path.is_file()
    assert library.build_library(SOURCE) == path


def test_without_a_compiler_it_says_so(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    library.compiler.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "torchferry"):
            assert library.build_library(SOURCE) is None
            assert library.build_library(SOURCE) is None
        assert caplog.text.count("no C compiler 'no-such-compiler'") == 1
    finally:
        library.compiler.cache_clear()
