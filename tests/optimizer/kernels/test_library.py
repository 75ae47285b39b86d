from __future__ import annotations

import logging
import stat
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
    monkeypatch.setattr(library.subprocess, "run", None)
    assert library.build_library(SOURCE) == path


@needs_compiler
def test_what_does_not_compile_is_told(caplog: Any, folder: Path) -> None:
    assert library.build_library("int answer(") is None
    assert "fails" in caplog.text
    assert list((folder / "kernels").iterdir()) == []


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
