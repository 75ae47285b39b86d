"""What a folder says of itself, and what may be replaced."""

import json
import shutil
from pathlib import Path

import pytest

from torchferry.deployer.manifest import MANIFEST, is_deployed, read_manifest, was_deployed
from torchferry.errors import UsageError


def test_a_deployed_folder_knows_its_files(deployed, tmp_path):
    out, _ = deployed
    manifest = read_manifest(out)
    assert is_deployed(out)
    assert (manifest.kind, manifest.graphs[0]) == ("decoder", "onnx/model.onnx")
    assert all(was_deployed(out)(path) for path in out.iterdir())
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "onnx" / "mine.onnx").write_text("")
    foreign = [path.name for path in copy.iterdir() if not was_deployed(copy)(path)]
    assert foreign == ["onnx"]


def test_a_folder_may_be_named_by_a_relative_path(deployed, monkeypatch):
    """``publish`` asks for entries with their whole paths."""
    out, _ = deployed
    monkeypatch.chdir(out.parent)
    assert all(was_deployed(Path(out.name))(path) for path in out.resolve().iterdir())


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", json.dumps({"kind": "decoder", "graphs": [], "files": [], "torchferry": "1"}),
     json.dumps({"kind": "decoder", "graphs": ["../x"], "files": [], "torchferry": "1"})],
)  # fmt: skip
def test_a_damaged_file_is_said_and_nothing_beside_it_is_taken_for_ours(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(UsageError, match="deploy the model again"):
        read_manifest(tmp_path)
    (tmp_path / "mine").write_text("")
    assert not was_deployed(tmp_path)(tmp_path / "mine")
