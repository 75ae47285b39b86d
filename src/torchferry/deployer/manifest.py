"""``deployment.json``: what a deployed folder holds, so that it can be loaded and replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchferry.errors import UsageError
from torchferry.exporter.folder import EXPORTED_FILES
from torchferry.seams.versions import installed

__all__ = [
    "MANIFEST",
    "Manifest",
    "is_deployed",
    "read_manifest",
    "was_deployed",
    "write_manifest",
]

MANIFEST = "deployment.json"


@dataclass(frozen=True)
class Manifest:
    """What stands in the file.

    Attributes:
        kind: ``decoder``, ``encoder``, ``image``, ``audio``, ``seq2seq`` or ``speech``.
        graphs: the graphs' files below the folder, the default first.
        files: everything below the folder, this file included.
        torchferry: the version that wrote it.
    """

    kind: str
    graphs: tuple[str, ...]
    files: tuple[str, ...]
    torchferry: str


def is_deployed(folder: Path) -> bool:
    """Whether a folder says that it was deployed."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """What a deployed folder holds.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / MANIFEST
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        graphs, files = (tuple(map(str, content[name])) for name in ("graphs", "files"))
        kind, written_by = str(content["kind"]), str(content["torchferry"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{path} is damaged ({error}): deploy the model again") from error
    outside = [n for n in graphs if Path(n).is_absolute() or ".." in Path(n).parts]
    if outside or not graphs:
        raise UsageError(f"{path} names no graph of its folder: deploy the model again")
    return Manifest(kind, graphs, files, written_by)


def write_manifest(folder: Path, kind: str, graphs: Sequence[str]) -> None:
    """Write the file, after everything else."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    manifest = Manifest(
        kind, tuple(graphs), tuple(sorted({*files, MANIFEST})), installed("torchferry") or ""
    )
    text = json.dumps(asdict(manifest), indent=2) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")


def was_deployed(out: Path) -> Callable[[Path], bool]:
    """A function: whether an export or a deployment wrote an entry of ``out``, and all in it."""
    try:
        known = {*read_manifest(out).files} if is_deployed(out) else set[str]()
    except UsageError:
        known = set()

    def wrote(path: Path) -> bool:
        held = [p for p in path.rglob("*") if not p.is_dir()] if path.is_dir() else [path]
        places = [
            one.parent.resolve() / one.name for one in held
        ]  # `publish` asks with whole paths
        names = {place.relative_to(out.resolve()).as_posix() for place in places}
        return names <= known | EXPORTED_FILES

    return wrote
