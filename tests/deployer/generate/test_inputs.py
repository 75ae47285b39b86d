"""What a deployed model cannot run is refused in a sentence that says what to give."""

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family
from torchferry.deployer import deploy
from torchferry.deployer.generate.cache import cache_name
from torchferry.deployer.generate.inputs import context_of
from torchferry.errors import UsageError
from torchferry.zoo.catalogue import build

IDS = torch.tensor([[5, 6, 7]])
STATES = torch.rand(1, 2, 8)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input_ids": "a text"}, r"input_ids is str, and a deployed model takes a tensor, int64"),
        ({"input_ids": [[5, 6]]}, r"input_ids is list, .*: tokenizer\(text, return_tensors="),
        ({"input_ids": IDS[0]}, r"input_ids is torch.int64 \(3,\), and .* int64 \(batch, seq"),
        ({"input_ids": IDS.float()}, r"input_ids is torch.float32 \(1, 3\), and"),
        ({"input_ids": IDS[:, :0]}, r"input_ids is empty, \(1, 0\): give one token"),
        ({"input_ids": IDS - 6}, r"input_ids holds -1, and tokens begin at 0"),
        ({"input_ids": IDS + 95}, r"input_ids holds 102, and the model knows tokens 0 to 98"),
        ({"input_ids": IDS, "attention_mask": torch.ones(1, 2)}, r"attention_mask is torch.float"),
        ({"input_ids": IDS, "attention_mask": IDS[:, :2]}, r"to be int64 \(1, 3\)"),
        ({"input_ids": IDS, "position_ids": IDS[:, :2]}, r"is 3 in input_ids, and 2 in position"),
    ],
)
@pytest.mark.parametrize("graph", ["onnx/model.onnx", "onnx/model_q4.onnx"])
def test_prompts_that_no_decoder_runs(deployed, graph, asked, message):
    model = tf.load(deployed[0], graph=graph)
    with pytest.raises(UsageError, match=message):
        model(**asked)
    if "position_ids" not in asked:  # transformers makes its own
        with pytest.raises(UsageError, match=message):
            model.generate(**asked, max_new_tokens=2, pad_token_id=0)


def test_kinds_of_integers_and_masks_of_bools_are_taken(deployed):
    model = tf.load(deployed[0])
    wanted = model(IDS, attention_mask=torch.ones(1, 3, dtype=torch.int64)).logits
    assert torch.equal(wanted, model(IDS.int(), attention_mask=IDS > 0).logits)


def test_a_cache_of_another_class_or_of_another_batch_is_refused(deployed):
    transformers = pytest.importorskip("transformers")
    model = tf.load(deployed[0])
    with pytest.raises(UsageError, match=r"cannot go on with DynamicCache: leave out"):
        model.generate(IDS, past_key_values=transformers.DynamicCache())
    held = model(IDS)[cache_name()]
    with pytest.raises(
        UsageError, match=r"batch_size is 2 in input_ids, and 1 in past_key_values"
    ):
        model(torch.tensor([[5], [6]]), past_key_values=held)


@pytest.mark.slow
def test_more_tokens_than_there_are_positions(tmp_path):
    folder = save_family("gpt2", tmp_path / "gpt2")
    assert deploy(folder, tmp_path / "out", precisions="fp32").ok
    model = tf.load(tmp_path / "out")
    longest = context_of(model.config)
    assert model(torch.ones(1, longest, dtype=torch.int64)).logits.shape[1] == longest
    with pytest.raises(UsageError, match=f"{longest + 1} tokens are more than the {longest} that"):
        model(torch.ones(1, longest + 1, dtype=torch.int64))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input_ids": IDS}, r"decoder_input_ids is NoneType, and a deployed model takes"),
        ({"decoder_input_ids": IDS}, r"input_ids is NoneType, and a deployed model takes"),
        ({"input_ids": IDS - 9, "decoder_input_ids": IDS}, r"input_ids holds -4, and tokens"),
        ({"input_ids": IDS, "attention_mask": IDS.T, "decoder_input_ids": IDS}, r"int64 \(1, 3"),
        ({"input_ids": IDS + 999, "decoder_input_ids": IDS}, r"input_ids holds 1006, and the mo"),
        ({"encoder_outputs": (STATES,), "decoder_input_ids": IDS}, r"8\), and the graph takes f"),
    ],
)
def test_prompts_that_no_encoder_decoder_runs(deployed_bart, asked, message):
    with pytest.raises(UsageError, match=message):
        tf.load(deployed_bart[0])(**asked)


def test_a_context_is_read_of_whatever_name_it_has():
    assert context_of(build("llama").model.config) == 64
    assert context_of(build("whisper").model.config) > 0
    assert context_of(object()) == 0
