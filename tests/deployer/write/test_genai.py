"""genai_config.json: keys that genai's strict parser knows, and none that it needs missing."""

import json

import onnx_ir as ir
import pytest

from torchferry.deployer.write.genai import check_decoder_graph
from torchferry.errors import UsageError
from torchferry.graph import io

# onnxruntime-genai 0.18; an unknown key fails the load.
KNOWN = {
    "model": {"bos_token_id", "context_length", "decoder", "eos_token_id", "pad_token_id", "type",
              "vocab_size"},
    "decoder": {"session_options", "filename", "head_size", "hidden_size", "inputs", "outputs",
                "num_attention_heads", "num_hidden_layers", "num_key_value_heads"},
    "search": {"diversity_penalty", "do_sample", "early_stopping", "length_penalty", "max_length",
               "min_length", "no_repeat_ngram_size", "num_beams", "num_return_sequences",
               "past_present_share_buffer", "repetition_penalty", "temperature", "top_k", "top_p"},
}  # fmt: skip


def test_the_keys_are_those_that_genai_reads(deployed):
    out, _ = deployed
    settings = json.loads((out / "genai_config.json").read_text())
    assert set(settings) == {"model", "search"}
    model, search = settings["model"], settings["search"]
    assert set(model) == KNOWN["model"]
    assert set(model["decoder"]) == KNOWN["decoder"]
    assert set(search) == KNOWN["search"]
    assert model["type"] == "decoder"
    assert (model["vocab_size"], model["context_length"], model["pad_token_id"]) == (99, 64, 0)
    assert model["decoder"]["filename"] == "onnx/model.onnx"
    sizes = ("head_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads")
    assert [model["decoder"][name] for name in sizes] == [8, 4, 2, 2]
    # The cache of the graph grows: with a shared buffer mask and cache would differ in length.
    assert search["past_present_share_buffer"] is False


def test_the_names_are_those_of_the_graph(deployed):
    out, _ = deployed
    decoder = json.loads((out / "genai_config.json").read_text())["model"]["decoder"]
    graph = io.load(out / "onnx/model.onnx").graph
    inputs, outputs = {v.name for v in graph.inputs}, {v.name for v in graph.outputs}
    named = {name % layer if "%d" in name else name
             for name in decoder["inputs"].values() for layer in range(2)}  # fmt: skip
    assert named == inputs
    named = {name % layer if "%d" in name else name
             for name in decoder["outputs"].values() for layer in range(2)}  # fmt: skip
    assert named == outputs


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [(["input_ids"], ["logits"], "has no keys and values of earlier tokens"),
     (["input_ids", "past_key_values.0.key", "state"], ["logits"], "has state; a decoder that"),
     (["past_key_values.0.key", "past_key_values.0.value"], ["x"], "has x; a decoder that")],
)  # fmt: skip
def test_a_graph_with_another_cache_is_refused(inputs, outputs, message):
    values = [[ir.Value(name=name) for name in names] for names in (inputs, outputs)]
    graph = ir.Graph(*values, nodes=[], name="g")
    with pytest.raises(UsageError, match=message):
        check_decoder_graph(graph, "it")
