"""A Llama from a folder, verified by layers: right ones pass, and faults are named."""

import json

import pytest
import torch

import torchferry as tf
from torchferry.exporter.deliver import deliver

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2, dtype="bfloat16",
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_folder_is_exported_by_reference_and_verified_by_layers(folder, tmp_path, monkeypatch):
    # As if it did not fit: it is never run as a whole.
    monkeypatch.setattr("torchferry.exporter.memory.available_memory", lambda: 10_000)
    report = deliver(str(folder), tmp_path / "out", weights="reference")
    assert report.ok, report.problems
    assert "2 of 4 run, never from end to end" in report.verdict
    assert report.data["layers"]["like"] == {
        "model.layers.2": "model.layers.1", "model.layers.3": "model.layers.1",
    }  # fmt: skip
    assert {d["status"] for d in report.data["dimensions"]} == {"verified"}
    sizes = [check["sizes"]["batch_size"] for check in report.data["checks"]]
    assert 1 in sizes
    loaded = tf.load(tmp_path / "out")
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype="auto").eval()
    ids = torch.randint(0, 64, (1, 7))
    mask = torch.ones(1, 7, dtype=torch.int64)
    cache = [torch.zeros(1, 2, 0, 8, dtype=torch.bfloat16)] * 2
    given = {
        "input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(7)[None],
        "past_key_values": tf.make_dynamic_cache([tuple(cache)] * 4),
    }  # fmt: skip
    with torch.no_grad():
        right = model(input_ids=ids, attention_mask=mask).logits.float()
    assert tf.max_diff(right, loaded(**given).logits.float()).abs < 0.15


@pytest.mark.slow
def test_a_copy_is_verified_by_layers_and_from_end_to_end(folder, tmp_path):
    report = deliver(str(folder), tmp_path / "out", verify="layers")
    assert report.ok, report.problems
    assert "from end to end once" in report.verdict
    assert (tmp_path / "out" / "model.onnx_data").stat().st_nlink == 1
    json.dumps(report.data)  # nothing but data
