"""Trained models, real text: the exported file says what PyTorch says."""

import re

import pytest
import torch

import torchferry as tf
from torchferry.cli.main import app
from torchferry.zoo.tasks import input_sets

PROMPTS = ["The capital of France is", "Water boils at a temperature of", "One, two, three,"]
SENTENCES = ["A man is eating food.", "Someone has a meal in a small restaurant.", "Snow."]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def run(*arguments):
    """The command line in this process; returns the exit code."""
    try:
        app([str(a) for a in arguments], standalone_mode=True)
    except SystemExit as stop:
        return stop.code
    return 0


def names_and_dims(path):
    model = tf.load(path).model
    return {v.name: [str(d) for d in v.shape] for v in [*model.graph.inputs, *model.graph.outputs]}


def test_minilm_folder_gives_the_embeddings_of_pytorch(minilm_folder, tmp_path, capsys):
    """It is a folder of sentence-transformers: the mean of its tokens, made a unit vector."""
    transformers = pytest.importorskip("transformers")
    code = run("export", minilm_folder, "-o", tmp_path / "out")
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert re.search(r"batch_size .*verified +1, ", printed)
    assert re.search(r"sequence_length .*verified +1, ", printed)

    exported = tf.load(tmp_path / "out")
    model = transformers.AutoModel.from_pretrained(minilm_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder)
    for sentences in (SENTENCES, SENTENCES[:1]):
        batch = tokenizer(sentences, padding=True, return_tensors="pt")
        with torch.no_grad():
            tokens = model(**batch).last_hidden_state
        kept = batch["attention_mask"].bool()
        means = torch.stack([row[k].mean(0) for row, k in zip(tokens, kept, strict=True)])
        expected = {
            "token_embeddings": tokens,
            "sentence_embedding": means / means.norm(dim=-1, keepdim=True),
        }
        assert tf.max_diff(expected, exported(**batch)).abs < 1e-4
    assert names_and_dims(tmp_path / "out") == {
        "input_ids": ["batch_size", "sequence_length"],
        "attention_mask": ["batch_size", "sequence_length"],
        "token_type_ids": ["batch_size", "sequence_length"],
        "token_embeddings": ["batch_size", "sequence_length", "384"],
        "sentence_embedding": ["batch_size", "384"],
    }
    assert exported.model.opset_imports[""] == 20
    assert exported.model.ir_version == 10
    assert (tmp_path / "out" / "model.onnx_data").stat().st_size > 80e6


@pytest.mark.slow
def test_two_layers_of_smollm_decode_the_tokens_of_generate(smollm, tmp_path):
    model, tokenizer = smollm(2)
    program = tf.export(model, [((), inputs) for inputs in input_sets(model)])
    assert program.report.ok, program.report.problems
    program.save(tmp_path / "model.onnx")
    check_tokens(model, tokenizer, tf.load(tmp_path / "model.onnx"), steps=8)
    dims = names_and_dims(tmp_path / "model.onnx")
    past = ["batch_size", "3", "past_sequence_length", "64"]
    total = "past_sequence_length + sequence_length"
    assert list(dims) == [
        "input_ids",
        "attention_mask",
        "position_ids",
        *(f"past_key_values.{i}.key" for i in range(2)),
        *(f"past_key_values.{i}.value" for i in range(2)),
        "logits",
        *(f"present.{i}.key" for i in range(2)),
        *(f"present.{i}.value" for i in range(2)),
    ]
    assert dims["past_key_values.1.value"] == past
    assert dims["attention_mask"] == ["batch_size", total]
    assert dims["present.0.key"] == ["batch_size", "3", total, "64"]
    assert dims["logits"] == ["batch_size", "sequence_length", "49152"]


@pytest.mark.slow
def test_whole_smollm_from_a_folder_answers_as_pytorch(smollm, tmp_path, capsys):
    model, tokenizer = smollm(30)
    # A model read from GGUF refuses save_pretrained; a fresh one with its weights does not.
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.save_pretrained(tmp_path / "smollm")
    # A busy machine may not get through all sizes within the default budget.
    code = run("export", tmp_path / "smollm", "-o", tmp_path / "out", "--budget", 600)
    assert code == 0, capsys.readouterr().out
    exported = tf.load(tmp_path / "out")
    check_tokens(model, tokenizer, exported, steps=12)
    batch = tokenizer(["The capital of France is"], return_tensors="pt")
    assert "Paris" in tokenizer.decode(greedy(exported, batch, 4)[0])


def greedy(program, batch, steps):
    """Token ids of shape (batch, prompt + steps) that ``program`` generates."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    cache, fresh = tf.make_dynamic_cache([]), ids
    for _ in range(steps):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -fresh.shape[1] :]
        outputs = program(
            input_ids=fresh, attention_mask=mask, position_ids=positions, past_key_values=cache
        )
        cache = getattr(outputs, "cache", None) or outputs.past_key_values
        fresh = outputs.logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, fresh], dim=1)
        mask = torch.cat([mask, torch.ones_like(fresh)], dim=1)
    return ids


def expected(model, batch, steps):
    """What ``generate`` gives for the same number of tokens, never stopping early."""
    with torch.no_grad():
        return model.generate(
            **batch, max_new_tokens=steps, min_new_tokens=steps, do_sample=False, pad_token_id=0
        )


def check_tokens(model, tokenizer, exported, steps):
    for prompts in ([PROMPTS[0]], PROMPTS):
        batch = dict(tokenizer(prompts, padding=True, return_tensors="pt"))
        got = greedy(exported, batch, steps)
        assert got.tolist() == expected(model, batch, steps).tolist()
