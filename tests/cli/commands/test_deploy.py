"""``torchferry deploy``: what it prints, and each exit code."""

import pytest

from torchferry.cli.main import app


def run(*arguments):
    try:
        app([str(a) for a in arguments], standalone_mode=True)
    except SystemExit as stop:
        return stop.code
    return 0


@pytest.mark.slow
def test_a_small_model_is_deployed(tmp_path, capsys):
    pytest.importorskip("transformers")
    out = tmp_path / "out"
    assert run("deploy", "zoo:llama", "-o", out, "--precision", "int8") == 0
    printed = capsys.readouterr().out
    assert "zoo:llama as int8 runs in onnxruntime" in printed
    assert "onnx/model_quantized.onnx" in printed
    assert {p.name for p in (out / "onnx").iterdir()} == {
        "model_quantized.onnx", "model_quantized.onnx_data",
    }  # fmt: skip


def test_wrong_usage_is_a_sentence(tmp_path):
    from torchferry.errors import UsageError

    with pytest.raises(UsageError, match="there is no runtime 'x'"):
        app(["deploy", "zoo:tiny-llm", "-o", str(tmp_path / "o"), "--for", "x"],
            standalone_mode=False)  # fmt: skip
    assert UsageError.exit_code == 2
