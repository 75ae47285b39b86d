"""Kinds of models, and the runtimes that take them."""

import pytest

from torchferry.deployer.kind import check_cache, check_runtimes, kind_of, task_of
from torchferry.errors import UsageError
from torchferry.zoo.catalogue import build


@pytest.mark.parametrize(
    ("name", "kind"),
    [("llama", "decoder"), ("bert", "encoder"), ("bert/text-classification", "encoder"),
     ("vit", "image"), ("t5", "seq2seq"), ("marian", "seq2seq"), ("whisper", "speech"),
     ("wav2vec2", "audio"), ("hubert/audio-classification", "audio")],
)  # fmt: skip
def test_each_kind_is_told(name, kind):
    assert kind_of(build(name).model, name) == kind


def test_a_cache_of_another_kind_is_refused_before_any_work():
    check_cache(build("llama").input_sets, "it")
    for name in ("mamba", "jamba"):
        with pytest.raises(UsageError, match="it keeps something else than keys and values"):
            check_cache(build(name).input_sets, "it")
    with pytest.raises(UsageError, match="it keeps something else"):
        check_cache([{"input_ids": 1}], "it")


def test_a_class_is_for_a_task():
    assert task_of("LlamaForCausalLM").optimum == "ORTModelForCausalLM"
    assert task_of("BertModel").name == "feature-extraction"
    assert task_of("T5ForConditionalGeneration").optimum == "ORTModelForSeq2SeqLM"
    assert task_of("Wav2Vec2ForCTC").optimum == "ORTModelForCTC"
    assert task_of("HubertForSequenceClassification").name == "audio-classification"
    assert task_of("BertForSequenceClassification").name == "text-classification"
    assert task_of("MarianMTModel").name == "translation"
    assert task_of("WhisperForConditionalGeneration").optimum == "ORTModelForSpeechSeq2Seq"


def test_a_runtime_refuses_a_kind_and_a_recipe_an_architecture():
    with pytest.raises(UsageError, match="genai runs no encoder, which it is: leave it out"):
        check_runtimes("encoder", ["genai"], ["fp32"], object(), title="it")
    with pytest.raises(UsageError, match="int4 is for models that generate tokens, and it is an"):
        check_runtimes("encoder", ["onnxruntime"], ["int4"], object(), title="it")
    check_runtimes("seq2seq", ["onnxruntime"], ["int4"], object(), title="it")
    with pytest.raises(UsageError, match="genai runs no encoder-decoder, which it is"):
        check_runtimes("seq2seq", ["genai"], ["fp32"], object(), title="it")
    check_runtimes("image", ["transformers.js"], ["fp32", "int8"], None, title="it")


def test_genai_hears_as_many_frames_as_whisper_does():
    config = build("whisper").model.config
    with pytest.raises(UsageError, match="genai runs models that hear 3000 frames at a time, and"):
        check_runtimes("speech", ["genai"], ["fp32"], object(), title="it", config=config)
    config.max_source_positions = 1500
    check_runtimes("speech", ["genai"], ["fp32"], object(), title="it", config=config)
