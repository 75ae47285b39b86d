from __future__ import annotations

import os
import stat
import threading

import pytest

from torchferry.errors import UsageError
from torchferry.report import file as report_file
from torchferry.report.file import write_whole


def test_it_writes_and_leaves_nothing_else(tmp_path):
    file = tmp_path / "report.json"
    write_whole(file, "é\n")
    assert file.read_bytes() == "é\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_permissions_follow_the_umask_as_for_any_file(tmp_path):
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "whole", "")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_text_that_utf8_cannot_hold_is_escaped(tmp_path):
    write_whole(tmp_path / "f", "name \udce9")
    assert (tmp_path / "f").read_text() == "name \\udce9"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, error):
    file = tmp_path / "report.html"
    file.write_text("old")

    def fail(_):
        raise error

    monkeypatch.setattr(report_file.os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else UsageError):
        write_whole(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_folder_is_named(tmp_path):
    file = tmp_path / "none" / "report.html"
    with pytest.raises(UsageError, match=r"cannot write .*none.*No such file") as caught:
        write_whole(file, "")
    assert str(file) in str(caught.value)


def test_a_folder_is_not_overwritten(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        write_whole(tmp_path, "")
    assert tmp_path.is_dir()
    assert not list(tmp_path.iterdir())


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "through")
    reader.join(timeout=10)
    assert read == ["through"]
