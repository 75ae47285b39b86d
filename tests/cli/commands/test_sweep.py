import json
import subprocess
import sys

import pytest


def torchferry(*arguments, cwd):
    command = [sys.executable, "-m", "torchferry", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.slow
def test_a_sweep_of_one_model_side_by_side(tmp_path):
    done = torchferry("sweep", "zoo:mlp", "--html", "s.html", "--json", "s.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torchferry: 1 of 1 ok; torch.onnx: 1 of 1 ok" in done.stdout
    rows = json.loads((tmp_path / "s.json").read_text())["data"]["rows"]
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert len((tmp_path / "sweep.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "s.html").stat().st_size < 300_000


@pytest.mark.slow
def test_a_file_that_is_no_sweep(tmp_path):
    (tmp_path / "x").write_text("hello\nhello\n")
    done = torchferry("sweep", "zoo:mlp", "-o", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "is no row of a sweep" in done.stderr
