import json
import logging
from contextlib import suppress

import pytest
import torch

from torchferry.dumper.folder import open_folder
from torchferry.dumper.store import open_dump, read_dump
from torchferry.errors import UsageError


@pytest.fixture
def folder(tmp_path):
    with open_dump(tmp_path / "dump") as dump:
        for number in range(3):
            dump.add(("m", number), torch.full((3,), number))
    return tmp_path / "dump"


def test_what_is_written_so_far_can_be_read(tmp_path, caplog):
    with open_dump(tmp_path / "dump") as dump:
        dump.add("a", torch.ones(2))
        dump.add("b", 3)
        with caplog.at_level(logging.WARNING, "torchferry"):
            assert list(read_dump(tmp_path / "dump")) == ["a", "b"]
        assert "was not finished; it holds 2 complete entries" in caplog.text
        caplog.clear()
    assert list(read_dump(tmp_path / "dump")) == ["a", "b"]
    assert not caplog.records


def test_what_was_written_before_an_exception_stays(tmp_path):
    with suppress(ZeroDivisionError), open_dump(tmp_path / "dump") as dump:
        dump.add("a", torch.ones(2))
        raise ZeroDivisionError
    assert read_dump(tmp_path / "dump")["a"].tolist() == [1, 1]


def test_a_half_written_file_of_a_crash_is_no_entry(folder):
    (folder / "index.json").unlink()
    (folder / ".torchferry-0123.part").write_bytes(b"half")
    assert len(read_dump(folder)) == 3


def test_a_folder_in_use_is_left_alone(folder):
    before = sorted(folder.iterdir())
    with pytest.raises(UsageError, match="not empty"), open_dump(folder):
        pass
    assert sorted(folder.iterdir()) == before


def test_a_file_that_is_lost_added_or_exchanged(folder):
    first, second, third = (folder / f"00000{n}.safetensors" for n in range(3))
    content = third.read_bytes()
    third.unlink()
    with pytest.raises(UsageError, match="files that its index"):
        read_dump(folder)
    third.write_bytes(second.read_bytes())
    with pytest.raises(UsageError, match="files that its index"):
        read_dump(folder)
    third.write_bytes(content)
    assert len(read_dump(folder)) == 3
    (folder / "000003.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="files that its index"):
        read_dump(folder)
    first.unlink()
    with pytest.raises(UsageError, match="missing"):
        read_dump(folder)


def test_one_key_twice(folder):
    (folder / "index.json").unlink()
    (folder / "000003.safetensors").write_bytes((folder / "000001.safetensors").read_bytes())
    with pytest.raises(UsageError, match="a second entry"):
        read_dump(folder)


@pytest.mark.parametrize("text", ["", "{", "null", "[" * 5000, '{"version": 1, "files": {}}'])
def test_an_index_that_is_damaged(folder, text):
    (folder / "index.json").write_text(text)
    with pytest.raises(UsageError, match="index"):
        open_folder(folder)


def test_no_dump(tmp_path):
    with pytest.raises(UsageError, match=r"no dump of torchferry: it has no index\.json"):
        open_folder(tmp_path)
    with open_dump(tmp_path / "empty"):
        pass
    assert read_dump(tmp_path / "empty") == {}
    assert json.loads((tmp_path / "empty/index.json").read_text())["files"] == {}
