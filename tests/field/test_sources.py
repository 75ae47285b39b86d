"""Sources whose packages are in the environment ``field`` only."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import torchferry
from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.report.model import Report
from torchferry.sources import load_source

# What peft and diffusers call in transformers and in huggingface_hub is deprecated there.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def check_verified(report: Report, *dynamic: str) -> None:
    """Equal at unseen sizes, batch 1 among them; these dimensions are dynamic.

    Three sizes or more; of the batch alone the exporter tries two besides 0.
    """
    assert report.ok, report.problems
    made = [
        check for check in report.data["checks"] if check["inputs"] == "made" and check["outputs"]
    ]
    assert len(made) >= (2 if dynamic == ("batch_size",) else 3)
    assert any(check["sizes"].get("batch_size") == 1 for check in made)
    status = {one["name"]: one["status"] for one in report.data["dimensions"]}
    assert {name for name, said in status.items() if said.startswith("verified")} >= set(dynamic)


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        ("torchvision:mobilenet_v3_small", ("batch_size", "height", "width")),
        ("torchvision:lraspp_mobilenet_v3_large", ("batch_size", "height", "width")),
        ("timm:test_resnet", ("batch_size", "height", "width")),
        ("timm:test_vit", ("batch_size",)),
    ],
)
def test_an_architecture_of_images_is_exported(
    name: str, dynamic: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip(name.partition(":")[0])
    report = deliver(name, tmp_path / "out")
    check_verified(report, *dynamic)
    assert "random weights" in report.data["steps"][0]["made"]


def test_a_model_of_one_size_keeps_it() -> None:
    pytest.importorskip("timm")
    sets = load_source("timm:test_vit").input_sets
    shapes = [tuple(args[0].shape) for args, _ in sets]
    assert {shape[1:] for shape in shapes} == {(3, 160, 160)}
    assert len({shape[0] for shape in shapes}) == len(shapes)


def shapes_of(value: Any) -> list[tuple[int, ...]]:
    return [tuple(one.shape) for one in (value if isinstance(value, list) else [value])]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("torchvision:ssdlite320_mobilenet_v3_large", [3, 3]),
        ("torchvision:r2plus1d_18", [5]),
        ("torchvision:raft_small", [4]),
    ],
)
def test_other_kinds_get_inputs_of_their_own(name: str, ranks: list[int]) -> None:
    pytest.importorskip("torchvision")
    source = load_source(name)
    first, second = (shapes_of(args[0]) for args, _ in source.input_sets[:2])
    assert [len(shape) for shape in first] == ranks
    assert all(a[-2:] != b[-2:] for a, b in zip(first, second, strict=True))
    with torch.no_grad():
        for args, kwargs in source.input_sets:
            source.model(*args, **kwargs)


def test_a_quantized_name_is_its_architecture_in_floats() -> None:
    pytest.importorskip("torchvision")
    model = load_source("torchvision:quantized_mobilenet_v2", run=False).model
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("kind", ["torchvision", "timm"])
def test_an_unknown_name_comes_with_the_closest(kind: str) -> None:
    pytest.importorskip(kind)
    with pytest.raises(UsageError, match=rf"has no model 'resnet19'; did you mean {kind}:resnet"):
        load_source(f"{kind}:resnet19")


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", ["max", "weightedmean"]])
def test_a_folder_of_sentence_transformers_gives_what_the_package_does(
    mode: Any, tmp_path: Path
) -> None:
    package = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    letters = [chr(97 + i) for i in range(26)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    bert, saved = tmp_path / "bert", tmp_path / "saved"
    transformers.BertModel(config).save_pretrained(bert)
    (bert / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizer(str(bert / "vocab.txt")).save_pretrained(bert)
    size = 16 * (len(mode) if isinstance(mode, list) else 1)
    stages = [modules.Transformer(str(bert)), modules.Pooling(16, pooling_mode=mode),
              modules.Dense(size, 8), modules.Normalize()]  # fmt: skip
    package.SentenceTransformer(modules=stages, device="cpu").save(str(saved))

    source = load_source(str(saved))
    original = package.SentenceTransformer(str(saved), device="cpu", local_files_only=True).eval()
    for _, inputs in source.input_sets:
        with torch.no_grad():
            expected = original.forward(dict(inputs))
            outputs = source.model(**inputs)
        for name in ("token_embeddings", "sentence_embedding"):
            torch.testing.assert_close(outputs[name], expected[name])
    check_verified(deliver(str(saved), tmp_path / "out"), "batch_size", "sequence_length")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def save_adapter(base: Path, folder: Path, settings: Any) -> tuple[torch.nn.Module, str]:
    """The adapted model, and the folder of its adapter."""
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(base)
    adapted = peft.get_peft_model(model, settings).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    adapted.save_pretrained(folder)
    return adapted, str(folder)


@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"use_rslora": True, "bias": "all"}])
def test_an_adapter_is_merged(options: dict[str, Any], base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], **options)
    adapted, folder = save_adapter(base, tmp_path / "adapter", settings)
    source = load_source(folder)
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        expected = adapted(input_ids=ids).logits
        torch.testing.assert_close(source.model(input_ids=ids).logits, expected)
    assert source.note == "lora adapter merged"
    assert not any("lora" in name for name, _ in source.model.named_parameters())


def test_an_adapter_is_exported(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, target_modules=["v_proj"], task_type="CAUSAL_LM")
    _, folder = save_adapter(base, tmp_path / "adapter", settings)
    check_verified(deliver(folder, tmp_path / "out"), "batch_size", "sequence_length")


def test_an_adapter_is_an_input(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
    first, folder = save_adapter(base, tmp_path / "first", settings)
    second, other = save_adapter(base, tmp_path / "second", settings)
    check_verified(deliver(f"{folder}:inputs", tmp_path / "out"), "batch_size", "sequence_length")
    program = torchferry.load(tmp_path / "out")
    for adapted, place in ((first, folder), (second, other)):
        args, kwargs = load_source(f"{place}:inputs").input_sets[1]
        assert len(kwargs["adapter"]) == 8
        plain = {name: value for name, value in kwargs.items() if name != "adapter"}
        with torch.no_grad():
            expected = adapted(**copy.deepcopy(plain)).logits
        torch.testing.assert_close(program(*args, **kwargs).logits, expected, rtol=1e-3, atol=1e-4)


def test_an_adapter_that_cannot_be_merged_or_lacks_weights_is_refused(
    base: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    prompt = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(UsageError, match="is a prompt_tuning adapter, which cannot be merged"):
        load_source(save_adapter(base, tmp_path / "prompt", prompt)[1])
    _, folder = save_adapter(base, tmp_path / "less", peft.LoraConfig(target_modules=["q_proj"]))
    _, more = save_adapter(
        base, tmp_path / "more", peft.LoraConfig(target_modules=["q_proj", "v_proj"])
    )
    (Path(folder) / "adapter_config.json").write_text(
        (Path(more) / "adapter_config.json").read_text()
    )
    with pytest.raises(UsageError, match="lacks weights of the adapter"):
        load_source(folder)


def build_components(diffusers: Any) -> dict[str, Any]:
    unet = {
        "block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }  # fmt: skip
    text = {"joint_attention_dim": 16, "pooled_projection_dim": 16, "num_layers": 1,
            "in_channels": 4, "num_attention_heads": 2}  # fmt: skip
    return {
        "unet": lambda: diffusers.UNet2DConditionModel(
            cross_attention_dim=16, attention_head_dim=4, **unet
        ),
        "unet_xl": lambda: diffusers.UNet2DConditionModel(
            cross_attention_dim=32, attention_head_dim=(2, 4), addition_embed_type="text_time",
            addition_time_embed_dim=8, projection_class_embeddings_input_dim=64,
            use_linear_projection=True, **unet,
        ),
        "transformer_sd3": lambda: diffusers.SD3Transformer2DModel(
            sample_size=32, attention_head_dim=8, caption_projection_dim=16, out_channels=4, **text
        ),
        "transformer_flux": lambda: diffusers.FluxTransformer2DModel(
            patch_size=1, num_single_layers=1, attention_head_dim=16, axes_dims_rope=(4, 4, 8),
            guidance_embeds=True, **text,
        ),
        "vae": lambda: diffusers.AutoencoderKL(
            block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, latent_channels=4,
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["unet", "unet_xl", "transformer_sd3", "transformer_flux", "vae_encoder", "vae_decoder"],
)
def test_a_component_of_diffusers_is_exported(name: str, tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    whole = "vae" if name.startswith("vae") else name
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_components(diffusers)[whole]()
    model.save_pretrained(tmp_path / "pipe" / whole)
    index = {"_class_name": "Some", whole: ["diffusers", type(model).__name__]}
    (tmp_path / "pipe" / "model_index.json").write_text(json.dumps(index))
    report = deliver(f"{tmp_path / 'pipe'}:{name}", tmp_path / "out")
    check_verified(report)
    assert not [one for one in report.data["dimensions"] if one["status"] == "fixed"]
