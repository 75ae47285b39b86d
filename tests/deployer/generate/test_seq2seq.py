"""`tf.load` of an encoder-decoder: transformers' own generate, over two sessions."""

import pytest
import torch

import torchferry as tf
from torchferry.errors import UsageError


@pytest.fixture(scope="module")
def both(deployed_bart, bart_folder):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(bart_folder).eval()
    return tf.load(deployed_bart[0]), theirs


def prompt(rows, length=9):
    ids = torch.randint(3, 90, (rows, length), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    if rows > 1:
        mask[0, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_beams": 2, "do_sample": True}])
def test_tokens_are_those_of_transformers(both, rows, options):
    asked = {**prompt(rows), "max_new_tokens": 7, "min_new_tokens": 7, **options}
    tokens = []
    for model in both:
        torch.manual_seed(5)
        tokens.append(model.generate(**asked).tolist())
    assert tokens[0] == tokens[1]
    assert len(tokens[0][0]) == 8


def test_a_call_gives_logits_and_a_step_after_it_those_of_the_whole(both):
    ours, theirs = both
    inputs, ids = prompt(2), torch.tensor([[2, 5, 6, 7], [2, 8, 9, 10]])
    with torch.no_grad():
        wanted = theirs(**inputs, decoder_input_ids=ids).logits
    assert tf.max_diff(wanted, ours(**inputs, decoder_input_ids=ids).logits).abs < 1e-5
    first = ours(**inputs, decoder_input_ids=ids[:, :3])
    cache = first["cache"] if "cache" in first else first["past_key_values"]
    held = cache.values["past_key_values.0.encoder.key"]
    mask = inputs["attention_mask"]
    states = (first.encoder_last_hidden_state,)
    step = ours(
        decoder_input_ids=ids[:, 3:], encoder_outputs=states, attention_mask=mask, cache=cache
    )
    assert tf.max_diff(wanted[:, 3:], step.logits).abs < 1e-5
    assert cache.get_seq_length() == 4
    # Keys and values of the encoder's states are those of the first call, not copies.
    assert cache.values["past_key_values.0.encoder.key"] is held


def test_another_precision_takes_its_own_encoder(deployed_bart, both):
    out, _ = deployed_bart
    coarse = tf.load(out, graph="onnx/decoder_model_merged_quantized.onnx")
    inputs, ids = prompt(1), torch.tensor([[2, 5]])
    a, b = (model(**inputs, decoder_input_ids=ids) for model in (coarse, both[0]))
    assert 1e-4 < tf.max_diff(a.encoder_last_hidden_state, b.encoder_last_hidden_state).abs < 0.2
    with pytest.raises(UsageError, match="no model at"):
        tf.load(out, graph="onnx/decoder_model_merged_fp16.onnx")
