"""Runtimes: which are here, and that each gives PyTorch's tokens; those missing are skipped."""

import pytest
import torch

from torchferry.deployer.layout import GRAPHS
from torchferry.deployer.prove.corpus import prompts
from torchferry.deployer.prove.reference import generated
from torchferry.deployer.prove.runtimes import RUNNERS, Request, generate_there
from torchferry.errors import RunError


@pytest.fixture(scope="module")
def wanted(llama_folder):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(llama_folder).eval()
    batches = prompts(transformers.AutoTokenizer.from_pretrained(llama_folder), 99, 0)
    return batches, generated(model, batches, 8, 0)


@pytest.mark.parametrize("graph", GRAPHS[:2], ids=lambda graph: graph.name)
@pytest.mark.parametrize("name", RUNNERS)
def test_the_tokens_are_pytorchs(deployed, wanted, name, graph):
    if not RUNNERS[name].installed():
        pytest.skip(f"{name} is not installed: {RUNNERS[name].missing}")
    batches, expected = wanted
    out, _ = deployed
    result = generate_there(name, Request(out, "decoder", graph, batches, 8, 0))
    assert result.tokens == expected.tokens
    assert len(result.tokens[0]) == 1
    assert len(result.tokens[1]) == 3


def test_a_runtime_that_fails_says_which_file_it_was(deployed, wanted, tmp_path):
    batches, _ = wanted
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text((deployed[0] / "config.json").read_text())
    (tmp_path / "onnx/model.onnx").write_bytes(b"no model")
    with pytest.raises(RunError, match=r"onnxruntime cannot load .*model\.onnx"):
        generate_there("onnxruntime", Request(tmp_path, "decoder", GRAPHS[0], batches, 8, 0))


def test_padding_is_on_the_left_and_masked(wanted):
    (one, three), expected = wanted
    assert one.attention_mask.all()
    assert three.attention_mask[:, -1].all()
    assert not three.attention_mask[:, 0].all()
    assert torch.equal(three.input_ids == 0, three.attention_mask == 0)
    # A row has the same tokens alone and with others beside it.
    row = expected.tokens[1][0]
    assert row[row.count(0) if 0 in row[:2] else 0 :][-8:] == expected.tokens[0][0][-8:]
