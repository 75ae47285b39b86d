"""Output folders: published whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torchferry.errors import UsageError

__all__ = ["EXPORTED_FILES", "Staging", "check_target", "publish"]

EXPORTED_FILES = frozenset({"model.onnx", "model.onnx_data", "report.html", "report.json"})
"""What an export writes; a folder that holds anything else is never replaced, except for second
names of a checkpoint's files."""


def check_target(
    out: Path, *, replace: bool, written: Callable[[Path], bool] | None = None
) -> None:
    """Check, before any work is done, that ``out`` can be written.

    Args:
        out: the folder to be made. It may exist when it is empty.
        replace: whether an earlier export in it may be replaced.
        written: whether torchferry wrote an entry of ``out``; what an export writes when ``None``.

    Raises:
        UsageError: ``out`` is a file, holds something, or cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder to write to")
    try:
        held = sorted(out.iterdir()) if out.exists() else []
        if held and not replace:
            raise UsageError(f"{out} exists; give --force to replace it, or another folder")
        foreign = [p.name for p in held if not (written or _exported)(p)]
        if foreign:
            raise UsageError(
                f"{out} holds {foreign[0]}, which no export wrote, and is not replaced; "
                "give another folder"
            )
        missing = _missing_parents(out)
        _new_folder(missing[0].parent if missing else out.resolve().parent, out.name).rmdir()
    except OSError as error:
        raise _not_written(out, error) from error


def _exported(path: Path) -> bool:
    """Whether an export wrote a file, or nothing is lost with it: it has another name too."""
    if not path.is_file() or path.name in EXPORTED_FILES:
        return path.is_file()
    return path.suffix == ".safetensors" and not path.is_symlink() and path.stat().st_nlink > 1


_PART, _EARLIER = "part", "earlier"  # endings of hidden folders: being written, being replaced


@dataclass
class Staging:
    """A folder that is being written.

    Attributes:
        folder: where to write.
        target: what the folder becomes; may be changed to another name in the same parent.
    """

    folder: Path
    target: Path


@contextmanager
def publish(
    out: Path, *, replace: bool, written: Callable[[Path], bool] | None = None
) -> Iterator[Staging]:
    """Yield an empty folder to write into; when the block ends well, it becomes its target.

    When the block raises, also for Ctrl-C, nothing is left and an existing ``out`` is as it was.
    The folder lies beside ``out`` under a hidden name, so that one rename publishes it; missing
    parents of ``out`` are made. A link is followed: what it points to is replaced.

    Args:
        out: the folder to be made.
        replace: whether an earlier export in it may be replaced.
        written: see `check_target`.

    Raises:
        UsageError: as `check_target`, or writing failed: no space, no permission.
    """
    target = out.resolve()
    _tidy(target)
    check_target(out, replace=replace, written=written)
    made: list[Path] = []
    staging: Path | None = None
    lock = -1
    try:
        for parent in _missing_parents(target):
            parent.mkdir()
            made.append(parent)
        staging = _new_folder(target.parent, target.name)
        lock = os.open(staging, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, also one that is killed
        staged = Staging(staging, target)
        yield staged
        # What came there in the meantime belongs to somebody else.
        check_target(staged.target, replace=replace or staged.target != target, written=written)
        _swap(staging, staged.target)
        made.clear()
    except OSError as error:
        raise _not_written(out, error) from error
    except UsageError as error:
        if isinstance(error.__cause__, OSError):  # says so of a file in the hidden folder
            raise _not_written(out, error.__cause__) from error
        raise
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        for parent in reversed(made):
            with suppress(OSError):  # somebody else put something there
                parent.rmdir()


def _swap(staging: Path, target: Path) -> None:
    """Put ``staging`` in the place of ``target``; what was there comes back when that fails."""
    if not target.exists():
        staging.rename(target)
        return
    earlier = _hidden_name(target.parent, target.name, _EARLIER)
    try:
        target.rename(earlier)
        staging.rename(target)
    finally:
        if earlier.exists() and not target.exists():
            earlier.rename(target)
        shutil.rmtree(earlier, ignore_errors=True)


def _missing_parents(out: Path) -> list[Path]:
    """Parents of ``out`` that do not exist, outermost first."""
    return [parent for parent in reversed(out.resolve().parents) if not parent.exists()]


def _new_folder(parent: Path, name: str) -> Path:
    """Make a hidden folder; unlike those of ``tempfile`` it has the usual permissions."""
    folder = _hidden_name(parent, name)
    folder.mkdir()
    return folder


def _hidden_name(parent: Path, name: str, ending: str = _PART) -> Path:
    return parent / f".{name}.{secrets.token_hex(8)}.{ending}"


def _tidy(target: Path) -> None:
    """Remove the hidden folders of exports into the same folder that were killed.

    An export that was killed while it replaced an earlier one may have moved that away: the
    earlier one gets its name back. While another export runs, whose folder is locked, all stay.
    """
    if not target.parent.is_dir():
        return
    kinds: dict[str, list[Path]] = {_PART: [], _EARLIER: []}
    left = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.({_PART}|{_EARLIER})")
    with suppress(OSError):  # of another user: not ours to remove
        for folder in sorted(target.parent.iterdir()):
            match = left.fullmatch(folder.name)
            if match is not None and folder.is_dir() and not folder.is_symlink():
                kinds[match[1]].append(folder)
        if any(map(_is_locked, kinds[_PART])):
            return
        for folder in kinds[_EARLIER]:
            if not target.exists():
                folder.rename(target)
        for folder in [*kinds[_PART], *kinds[_EARLIER]]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Whether a process writes to a folder; as far as is known, where there are no locks."""
    stream = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(stream)
    return False


def _not_written(out: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {out}: {error.strerror or error}; give another folder")
