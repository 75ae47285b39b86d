"""tests/field has the components that need diffusers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.exporter.program import load
from torchferry.sources import load_source
from torchferry.sources.diffusion import component_names, is_diffusion, load_component


def write_index(folder: Path, pipeline: str, **components: Any) -> None:
    entries = {"_class_name": pipeline, "_diffusers_version": "0.42.0", **components}
    (folder / "model_index.json").write_text(json.dumps(entries))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The text encoders of Stable Diffusion XL, which are transformers' own."""
    config = transformers.CLIPTextConfig(
        vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, projection_dim=12,
        bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, kind in (("text_encoder", transformers.CLIPTextModel),
                           ("text_encoder_2", transformers.CLIPTextModelWithProjection),
                          ):  # fmt: skip
            kind(config).save_pretrained(tmp_path / "sdxl" / name)
    write_index(
        tmp_path / "sdxl",
        "StableDiffusionXLPipeline",
        scheduler=["diffusers", "EulerDiscreteScheduler"],
        text_encoder=["transformers", "CLIPTextModel"],
        text_encoder_2=["transformers", "CLIPTextModelWithProjection"],
        image_encoder=[None, None],
    )
    return tmp_path / "sdxl"


def test_each_component_gets_a_folder(folder: Path, tmp_path: Path) -> None:
    assert component_names(str(folder)) == ["text_encoder", "text_encoder_2"]
    report = deliver(str(folder), tmp_path / "out")
    assert report.ok, report.problems
    for data in report.data["components"].values():
        made = [one for one in data["checks"] if one["inputs"] == "made" and one["outputs"]]
        assert len(made) >= 3
        assert any(one["sizes"]["batch_size"] == 1 for one in made)
        assert {one["status"] for one in data["dimensions"]} == {"verified"}
    states = [f"hidden_states.{i}" for i in range(3)]
    first, second = (load(tmp_path / "out" / name).model for name in report.data["components"])
    assert [value.name for value in first.graph.inputs] == ["input_ids"]
    outputs = [value.name for value in first.graph.outputs]
    assert outputs == ["last_hidden_state", "pooler_output", *states]
    outputs = [value.name for value in second.graph.outputs]
    assert outputs == ["text_embeds", "last_hidden_state", *states]


def test_other_pipelines_do_not_read_the_states_of_all_layers(folder: Path) -> None:
    write_index(folder, "StableDiffusionPipeline", text_encoder=["transformers", "CLIPTextModel"])
    source = load_source(f"{folder}:text_encoder")
    (_, inputs), *_ = source.input_sets
    original = transformers.CLIPTextModel.from_pretrained(folder / "text_encoder").eval()
    with torch.no_grad():
        outputs, expected = source.model(**inputs), original(**inputs)
    assert list(outputs) == ["last_hidden_state", "pooler_output"]
    torch.testing.assert_close(outputs["pooler_output"], expected.pooler_output)


def test_a_pipeline_is_not_one_model(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"is a pipeline of several models: export the whole"):
        load_source(str(folder))
    with pytest.raises(UsageError, match=r"no component 'unet'.*name one of .*:text_encoder, "):
        load_component(f"{folder}:unet")
    with pytest.raises(
        UsageError, match=r"--inputs is for one model: export .*:text_encoder, for"
    ):
        deliver(str(folder), folder.parent / "out", inputs="sets.py:sets")


def test_the_halves_of_an_autoencoder_are_components(folder: Path) -> None:
    write_index(
        folder, "Some", vae=["diffusers", "AutoencoderKL"], unet=["diffusers", "UNet2DModel"]
    )
    assert component_names(str(folder)) == ["vae_encoder", "vae_decoder", "unet"]
    assert component_names(f"{folder}:unet") == []
    assert is_diffusion(f"{folder}:unet")
    assert not is_diffusion(str(folder / "text_encoder"))


def test_without_the_package_the_command_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_index(folder, "Some", unet=["diffusers", "UNet2DModel"])
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(UsageError, match=r"needs diffusers, which is not installed: pip install "):
        load_component(f"{folder}:unet")


@pytest.mark.parametrize("value", [["diffusers", "Unheard"], ["mine", "UNet2DModel"]])
def test_a_component_of_another_class_is_refused(folder: Path, value: list[str]) -> None:
    write_index(folder, "Some", unet=value)
    with pytest.raises(UsageError, match=rf"a unet of the class {'.'.join(value)}, whose inputs"):
        component_names(str(folder))


@pytest.mark.parametrize("text", ["[]", "{", '{"unet": 3}'])
def test_a_damaged_index_is_refused(folder: Path, text: str) -> None:
    (folder / "model_index.json").write_text(text)
    with pytest.raises(UsageError, match=r"model_index.json (is no JSON|names no pipeline)"):
        component_names(str(folder))
