"""Runtimes, precisions and the names of files."""

import pytest

from torchferry.deployer.layout import (
    DECODER,
    ENCODER,
    GRAPHS,
    PRECISIONS,
    chosen_graphs,
    genai_files,
    optimum_names,
    read_choice,
)
from torchferry.errors import UsageError

# https://github.com/huggingface/transformers.js: DEFAULT_DTYPE_SUFFIX_MAPPING
SUFFIXES = {"fp32": "", "fp16": "_fp16", "q8": "_quantized", "q4": "_q4", "q4f16": "_q4f16"}


def test_files_are_named_as_transformers_js_looks_for_them():
    assert {graph.dtype: graph.end for graph in GRAPHS if graph.dtype} == SUFFIXES
    assert all(graph.path.as_posix() == f"onnx/model{graph.end}.onnx" for graph in GRAPHS)


def test_an_encoder_decoder_has_two_files_and_genai_two_others(tmp_path):
    (graph,) = chosen_graphs(("int8",), (ENCODER, DECODER))
    names = [path.as_posix() for path in graph.paths]
    ends = ["encoder_model_quantized.onnx", "decoder_model_merged_quantized.onnx"]
    assert names == [f"onnx/{end}" for end in ends]
    assert graph.path == graph.paths[1]
    assert [*genai_files(graph, tmp_path).values()] == list(graph.paths)
    (tmp_path / "onnx").mkdir()
    for name in ("genai_decoder_quantized", "genai_model_q4"):
        (tmp_path / f"onnx/{name}.onnx").touch()
    files = genai_files(graph, tmp_path)
    assert files["encoder"].as_posix() == "onnx/genai_encoder_quantized.onnx"
    assert files["decoder"].as_posix() == "onnx/genai_decoder_quantized.onnx"
    own = {g.name: genai_files(g, tmp_path)["decoder"].stem for g in GRAPHS}
    assert (own["int4"], own["int8"]) == ("genai_model_q4", "model_quantized")
    assert optimum_names(graph)["decoder_with_past_file_name"] == ends[1]
    assert optimum_names(chosen_graphs(("fp32",), (ENCODER, DECODER))[0]) == {}
    assert optimum_names(GRAPHS[1]) == {"file_name": "model_fp16.onnx"}


def test_a_choice_keeps_its_order_and_names_each_entry_once():
    assert read_choice(" int4 ,fp32,int4,", PRECISIONS, "precision") == ("int4", "fp32")
    assert read_choice(["fp16"], PRECISIONS, "precision") == ("fp16",)
    with pytest.raises(UsageError, match="there is no precision 'q4'"):
        read_choice("q4", PRECISIONS, "precision")


def test_four_bits_with_float16_come_if_both_are_asked_for():
    assert [graph.name for graph in chosen_graphs(("int4",))] == ["int4"]
    assert [g.name for g in chosen_graphs(("fp16", "int4"))] == ["fp16", "int4", "int4+fp16"]
