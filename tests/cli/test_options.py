"""What several commands take reads alike in each."""

import pytest

from torchferry.cli.main import main
from torchferry.cli.options import Dtype


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
