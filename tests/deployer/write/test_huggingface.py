"""The files of a Hugging Face folder: each trap of readers that are older or in JavaScript."""

import json

import pytest

from torchferry.deployer.layout import chosen_graphs
from torchferry.deployer.write.huggingface import (
    copy_processor,
    deployed_config,
    read_tokenizer,
    write_tokenizer,
)
from torchferry.errors import UsageError
from torchferry.zoo.catalogue import build


def test_the_tokenizer_is_read_by_transformers_4_57(deployed):
    out, _ = deployed
    settings = json.loads((out / "tokenizer_config.json").read_text())
    # transformers 5 writes TokenizersBackend, which 4.57 rejects.
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    # Without it 4.57 returns token_type_ids, which generate refuses.
    assert settings["model_input_names"] == ["input_ids", "attention_mask"]


def test_a_processor_of_transformers_5_is_found_by_older_readers(tmp_path):
    """It writes one processor_config.json, where JavaScript wants preprocessor_config.json."""
    source, out = tmp_path / "source", tmp_path / "out"
    for folder in (source, out):
        folder.mkdir()
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000}
    whole = {"feature_extractor": extractor, "processor_class": "Wav2Vec2Processor"}
    (source / "processor_config.json").write_text(json.dumps(whole))
    copy_processor(str(source), out)
    part = json.loads((out / "preprocessor_config.json").read_text())
    assert part == {**extractor, "processor_class": "Wav2Vec2Processor"}
    (source / "preprocessor_config.json").write_text("{}")
    copy_processor(str(source), out)  # what the folder has is not written again
    assert (out / "preprocessor_config.json").read_text() == "{}"
    (source / "preprocessor_config.json").unlink()
    (out / "preprocessor_config.json").unlink()
    (source / "processor_config.json").write_text("[")
    with pytest.raises(UsageError, match=r"processor_config\.json of the model is no JSON"):
        copy_processor(str(source), out)


def test_rope_stands_where_transformers_4_57_looks_for_it(deployed):
    out, _ = deployed
    settings = json.loads((out / "config.json").read_text())
    # 4.57 silently takes 10000 where rope_theta is missing.
    assert settings["rope_theta"] == settings["rope_parameters"]["rope_theta"]
    assert settings["rope_scaling"] is None
    assert settings["architectures"] == ["LlamaForCausalLM"]


def test_scaled_rope_is_written_as_rope_scaling(tmp_path):
    model = build("llama").model
    model.config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    settings = deployed_config(model, tmp_path, ())
    assert settings["rope_theta"] == 5e5
    assert settings["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}


def test_a_browser_finds_the_files_of_weights_and_the_dtype_of_the_cache(deployed):
    out, _ = deployed
    script = json.loads((out / "config.json").read_text())["transformers.js_config"]
    names = ("model", "model_fp16", "model_quantized", "model_q4", "model_q4f16")
    assert script["use_external_data_format"] == {f"{name}.onnx": 1 for name in names}
    assert script["kv_cache_dtype"] == {"fp16": "float16", "q4f16": "float16"}


def test_what_the_checkpoint_was_quantized_with_is_not_repeated(tmp_path):
    model = build("llama").model
    model.config.quantization_config = {"quant_method": "gguf"}
    assert "quantization_config" not in deployed_config(model, tmp_path, chosen_graphs(("fp32",)))


def test_a_folder_without_tokenizer_has_none_and_a_broken_one_is_said(tmp_path):
    assert read_tokenizer("zoo:llama") is None
    assert read_tokenizer(str(tmp_path)) is None
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match="transformers cannot read the tokenizer of"):
        read_tokenizer(str(tmp_path))


def test_an_encoder_keeps_its_token_types(tmp_path, llama_folder):
    tokenizer = read_tokenizer(str(llama_folder))
    write_tokenizer(tokenizer, tmp_path, ["input_ids", "attention_mask", "token_type_ids"])
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["model_input_names"] == ["input_ids", "token_type_ids", "attention_mask"]
