from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchferry.errors import UsageError
from torchferry.exporter import folder
from torchferry.exporter.folder import check_target, publish


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def earlier(out: Path) -> Path:
    out.mkdir()
    (out / "model.onnx").write_text("earlier")
    return out


def content(path: Path) -> dict[str, str]:
    """Names and texts of all files below a folder, hidden ones too."""
    files = (p for p in path.rglob("*") if p.is_file())
    return {p.relative_to(path).as_posix(): p.read_text() for p in files}


def write(out: Path, *, fail: BaseException | None = None) -> None:
    """Publish a model over what is there, or fail when it is half written."""
    with publish(out, replace=True) as staging:
        (staging.folder / "model.onnx").write_text("new")
        if fail is not None:
            raise fail


def test_what_is_written_appears_when_the_block_ends(out: Path) -> None:
    with publish(out, replace=False) as staging:
        (staging.folder / "model.onnx").write_text("new")
        assert staging.folder.parent == out.parent
        assert not out.exists()
    assert content(out.parent) == {"out/model.onnx": "new"}


def test_it_has_the_permissions_of_any_new_folder(out: Path) -> None:
    with publish(out, replace=False):
        pass
    (out.parent / "plain").mkdir()
    assert out.stat().st_mode == (out.parent / "plain").stat().st_mode


def test_parents_are_made_and_removed_again_when_it_fails(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "out"
    with pytest.raises(ZeroDivisionError):
        write(out, fail=ZeroDivisionError())
    assert not list(tmp_path.iterdir())
    with publish(out, replace=False) as staging:
        (staging.folder / "report.json").write_text("{}")
    assert content(tmp_path) == {"a/b/out/report.json": "{}"}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_earlier_output(earlier: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        write(earlier, fail=error())
    assert content(earlier.parent) == {"out/model.onnx": "earlier"}
    assert len(list(earlier.parent.iterdir())) == 1


def test_an_existing_output_needs_force(earlier: Path) -> None:
    with pytest.raises(UsageError, match="exists; give --force"):
        check_target(earlier, replace=False)
    with pytest.raises(UsageError, match="exists; give --force"), publish(earlier, replace=False):
        pytest.fail("the block ran")
    assert content(earlier) == {"model.onnx": "earlier"}


def test_an_earlier_output_is_replaced_whole(earlier: Path) -> None:
    (earlier / "report.html").write_text("earlier")
    with publish(earlier, replace=True) as staging:
        (staging.folder / "model.onnx").write_text("new")
        assert content(earlier)["model.onnx"] == "earlier"
    assert content(earlier.parent) == {"out/model.onnx": "new"}


def test_an_empty_folder_needs_no_force(out: Path) -> None:
    out.mkdir()
    with publish(out, replace=False) as staging:
        (staging.folder / "model.onnx").write_text("new")
    assert content(out.parent) == {"out/model.onnx": "new"}


@pytest.mark.parametrize("name", ["thesis.tex", "model.onnx.bak", ".git"])
def test_a_folder_with_foreign_files_is_never_replaced(earlier: Path, name: str) -> None:
    (earlier / name).write_text("precious")
    with pytest.raises(UsageError, match=f"holds {name}, which no export wrote"):
        check_target(earlier, replace=True)
    assert len(content(earlier)) == 2


def test_a_second_name_of_a_checkpoints_file_is_replaced_and_an_only_one_is_not(
    earlier: Path,
) -> None:
    origin = earlier.parent / "origin.safetensors"
    origin.write_text("weights")
    held = earlier / "model.safetensors"
    held.hardlink_to(origin)
    write(earlier)
    assert content(earlier) == {"model.onnx": "new"}
    assert origin.read_text() == "weights"
    held.write_text("the only ones")
    with pytest.raises(UsageError, match=r"holds model\.safetensors, which no export wrote"):
        check_target(earlier, replace=True)
    held.unlink()
    held.symlink_to(origin)
    with pytest.raises(UsageError, match=r"holds model\.safetensors"):
        check_target(earlier, replace=True)


def test_a_folder_named_as_an_export_is_foreign(earlier: Path) -> None:
    (earlier / "report.html").mkdir()
    with pytest.raises(UsageError, match=r"holds report\.html, which no export wrote"):
        check_target(earlier, replace=True)


def test_a_file_in_the_way_is_said_to_be_one(out: Path) -> None:
    out.write_text("a file")
    with pytest.raises(UsageError, match="is a file"):
        check_target(out, replace=True)
    with pytest.raises(UsageError, match=r"cannot write .*Not a directory"):
        check_target(out / "below", replace=False)
    assert out.read_text() == "a file"


def test_an_unwritable_parent_is_found_before_any_work(tmp_path: Path) -> None:
    # root may write anywhere but in /proc
    place = Path("/proc") if os.geteuid() == 0 else tmp_path / "locked"
    if place != Path("/proc"):
        place.mkdir(mode=0o500)
    with pytest.raises(UsageError, match=r"cannot write .*give another folder"):
        check_target(place / "out", replace=False)
    with pytest.raises(UsageError, match=r"cannot write .*give another folder"):
        check_target(place / "deeper" / "out", replace=False)


def test_checking_leaves_nothing(tmp_path: Path) -> None:
    check_target(tmp_path / "a" / "b" / "out", replace=False)
    check_target(tmp_path / "out", replace=True)
    assert not list(tmp_path.iterdir())


def test_the_current_folder_can_be_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with publish(Path("out"), replace=False) as staging:
        (staging.folder / "model.onnx").write_text("new")
    assert content(tmp_path) == {"out/model.onnx": "new"}


def test_a_link_keeps_pointing_to_the_new_output(earlier: Path) -> None:
    link = earlier.parent / "link"
    link.symlink_to(earlier)
    with publish(link, replace=True) as staging:
        (staging.folder / "model.onnx").write_text("new")
    assert link.is_symlink()
    assert content(earlier) == {"model.onnx": "new"}


def test_a_full_disk_is_one_sentence(earlier: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told = UsageError("cannot write /hidden/.out.part/model.onnx: No space left on device")
    told.__cause__ = full
    for error in (full, told):
        with pytest.raises(UsageError) as raised:
            write(earlier, fail=error)
        sentence = f"cannot write {earlier}: No space left on device; give another folder"
        assert str(raised.value) == sentence
        assert content(earlier.parent) == {"out/model.onnx": "earlier"}


def test_a_disk_that_is_really_full(out: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(UsageError, match="No space left"):
        write_to_full_device(out)
    assert not list(out.parent.iterdir())


def write_to_full_device(out: Path) -> None:
    with publish(out, replace=False) as staging:
        (staging.folder / "model.onnx").symlink_to("/dev/full")
        (staging.folder / "model.onnx").write_text("x" * 10_000)


def test_other_errors_of_the_block_pass_as_they_are(out: Path) -> None:
    error = UsageError("unknown model")
    with pytest.raises(UsageError) as raised:
        write(out, fail=error)
    assert raised.value is error


def test_the_folder_may_get_another_name_at_the_end(earlier: Path) -> None:
    with publish(earlier, replace=True) as staging:
        (staging.folder / "model.onnx").write_text("wrong")
        staging.target = staging.target.with_name("out.failed")
    assert content(earlier.parent) == {
        "out/model.onnx": "earlier",
        "out.failed/model.onnx": "wrong",
    }


def test_the_earlier_output_comes_back_when_the_second_rename_fails(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, calls = Path.rename, []

    def second_fails(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(folder.Path, "rename", second_fails)
    with pytest.raises(UsageError, match="Input/output error"):
        write(earlier)
    assert len(calls) == 3
    assert content(earlier.parent) == {"out/model.onnx": "earlier"}


def test_ctrl_c_in_mid_write_leaves_the_earlier_output(earlier: Path) -> None:
    code = """
import signal, sys, time
from pathlib import Path
from torchferry.exporter.folder import publish
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
with publish(Path(sys.argv[1]), replace=True) as staging:
    with (staging.folder / "model.onnx").open("w") as stream:
        stream.write("half")
        stream.flush()
        print("writing", flush=True)
        time.sleep(60)
"""
    command = [sys.executable, "-c", code, str(earlier)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(earlier.parent.iterdir())) == 2
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert content(earlier.parent) == {"out/model.onnx": "earlier"}
    assert len(list(earlier.parent.iterdir())) == 1


def finish_after_another(out: Path) -> None:
    """Write into ``out``, where another run publishes its own in the meantime."""
    with publish(out, replace=False) as staged:
        (staged.folder / "model.onnx").write_text("mine")
        out.mkdir()
        (out / "model.onnx").write_text("another run's")


def test_what_came_in_the_meantime_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="exists"):
        finish_after_another(out)
    assert (out / "model.onnx").read_text() == "another run's"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


KILLED = """
import os, signal, sys
from pathlib import Path
from torchferry.exporter.folder import publish
with publish(Path(sys.argv[1]), replace=True) as staging:
    (staging.folder / "model.onnx").write_text("half")
    if sys.argv[2] == "running":
        print("ready", flush=True)
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def hidden(out: Path) -> list[str]:
    return [path.name for path in out.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_the_next_export_removes_the_folders_of_those_that_were_killed(earlier: Path) -> None:
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", KILLED, str(earlier), "killed"], check=False)
        assert ran.returncode == -signal.SIGKILL
        assert len(hidden(earlier)) == 1  # the second removed that of the first
    other = earlier.parent / f".{earlier.name}.b.0123456789abcdef.part"  # of an export into out.b
    other.mkdir()
    write(earlier)
    assert hidden(earlier) == [other.name]
    assert content(earlier) == {"model.onnx": "new"}


def test_the_folder_of_a_running_export_stays(earlier: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(earlier), "running"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        write(earlier)
        assert len(hidden(earlier)) == 1
        running.kill()
    write(earlier)
    assert hidden(earlier) == []


def test_an_earlier_export_that_was_moved_away_comes_back(earlier: Path) -> None:
    """Killed between the two renames: nothing stands in its place."""
    earlier.rename(earlier.parent / ".out.0123456789abcdef.earlier")
    with pytest.raises(ZeroDivisionError):
        write(earlier, fail=ZeroDivisionError())
    assert content(earlier.parent) == {"out/model.onnx": "earlier"}
    copy = earlier.parent / ".out.fedcba9876543210.earlier"
    copy.mkdir()  # of one that was killed after both: there is a newer one
    write(earlier)
    assert content(earlier.parent) == {"out/model.onnx": "new"}
    assert not copy.exists()
