"""The card is Markdown that shows tables and how each runtime loads the folder."""

from torchferry.deployer.card import write_card
from torchferry.deployer.layout import GRAPHS
from torchferry.report.model import Cell, Table


def test_tables_and_commands_are_written(tmp_path):
    table = Table(("a", "b"), (("x|y", Cell("1 %", "good")),), note="A note.")
    words = {"name": "folder", "task": "feature-extraction", "optimum": "ORTModel", "call": "call"}
    write_card(
        tmp_path,
        "the model",
        [("Figures", table)],
        graphs=GRAPHS[2:3],
        runtimes=("onnxruntime", "optimum", "transformers.js"),
        words=words,
    )
    card = (tmp_path / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card
    assert "| a | b |\n|---|---|\n| x\\|y | 1 % |\n\nA note." in card
    assert (
        'ORTModel.from_pretrained("folder", subfolder="onnx", file_name="model_quantized.onnx")'
        in card
    )
    assert 'await pipeline("feature-extraction", "folder", { dtype: "q8" });' in card
    assert "model(**tokenizer(" in card
    assert "generate" not in card
