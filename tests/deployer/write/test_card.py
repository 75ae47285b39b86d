"""The card is Markdown that shows tables and how each runtime loads the folder."""

from torchferry.deployer.layout import DECODER, ENCODER, chosen_graphs
from torchferry.deployer.write.card import write_card
from torchferry.report.model import Cell, Table


def test_tables_and_commands_are_written(tmp_path):
    table = Table(("a", "b"), (("x|y", Cell("1 %", "good")),), note="A note.")
    words = {"name": "folder", "task": "feature-extraction", "optimum": "ORTModel",
             "kind": "encoder", "input": "input_ids", "shape": "(1, 3)", "start": "0"}  # fmt: skip
    (tmp_path / "tokenizer.json").touch()
    write_card(
        tmp_path,
        "the model",
        [("Figures", table)],
        graphs=chosen_graphs(("int8",)),
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
    assert card.count('tokenizer = AutoTokenizer.from_pretrained("folder")') == 2
    assert card.count("outputs = model(**tokenizer(") == 2
    assert "generate" not in card


def test_an_encoder_decoder_is_two_files_that_each_runtime_is_told_of(tmp_path):
    words = {"name": "f", "task": "translation", "optimum": "ORTModel",
             "kind": "seq2seq", "input": "input_ids", "shape": "(1, 3)", "start": "0"}  # fmt: skip
    graphs = chosen_graphs(("fp32", "fp16"), (ENCODER, DECODER))
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/genai_decoder_fp16.onnx").touch()
    for first in (0, 1):
        write_card(
            tmp_path, "it", [], graphs=[graphs[first], graphs[1]],
            runtimes=("optimum", "genai", "onnxruntime"), words=words,
        )  # fmt: skip
        card = (tmp_path / "README.md").read_text()
        names = '"onnx"' if first == 0 else (
            '"onnx", encoder_file_name="encoder_model_fp16.onnx", '
            'decoder_file_name="decoder_model_merged_fp16.onnx", '
            'decoder_with_past_file_name="decoder_model_merged_fp16.onnx"'
        )  # fmt: skip
        assert f'ORTModel.from_pretrained("f", subfolder={names})' in card
        assert '{"encoder": {"filename": "onnx/genai_encoder_fp16.onnx"}, "decoder": {' in card
        assert "model.generate(input_ids=torch.tensor([[1, 2, 3]]), max_new" in card
