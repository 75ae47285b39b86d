from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.sources.checkpoint import (
    build_checkpoint,
    has_weights,
    load_checkpoint,
    map_checkpoint,
)
from versions import at_least


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    weights = {**load_file(path), name: tensor}
    kept = {key: value for key, value in weights.items() if value is not None}
    save_file(kept, path, metadata={"format": "pt"})


def test_the_model_is_what_was_saved(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = load_checkpoint(folder)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not model.training
    stored = load_file(folder / "model.safetensors")
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(model.lm_head.weight, stored["lm_head.weight"])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("lost", "message"),
    [("config.json", "has no config.json"), ("model.safetensors", "no weights in")],
)
def test_a_missing_file_is_named(folder: Path, lost: str, message: str) -> None:
    (folder / lost).unlink()
    with pytest.raises(UsageError, match=message):
        load_checkpoint(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        load_checkpoint(tmp_path / "absent")


def test_pickled_weights_are_not_loaded(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"pickled ones \(pytorch_model.bin\)"):
        load_checkpoint(folder)


def test_a_missing_weight_is_not_made_up(folder: Path) -> None:
    change_weights(folder, "lm_head.weight", None)
    with pytest.raises(UsageError, match=r"lacks 1 weights.*'lm_head.weight'"):
        load_checkpoint(folder)


def test_a_misshapen_weight_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change_weights(folder, "lm_head.weight", torch.zeros(3, 16))
    shapes = r"as \[3, 16\].* has \[50, 16\]|in one shape, where .* has another"  # transformers 4
    with pytest.raises(UsageError, match=f"'lm_head.weight' ({shapes})"):
        load_checkpoint(folder)
    assert capfd.readouterr().err == ""


def test_weights_that_are_cut_short_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match="cannot be loaded as LlamaForCausalLM: SafetensorError"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "no entry 'architectures'"),
        ('{"architectures": []}', "no entry 'architectures'"),
        ('{"architectures": ["NoSuchModel"]}', "names NoSuchModel, which transformers"),
    ],
)
def test_a_bad_config_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_checkpoint(folder)


def test_code_in_the_folder_is_not_run(folder: Path) -> None:
    (folder / "mine.py").write_text(f"open({str(folder / 'trap')!r}, 'w')\nclass Mine: pass\n")
    change_config(
        folder,
        auto_map={"AutoModel": "mine.Mine", "AutoConfig": "mine.Mine"},
        architectures=["Mine"],
    )
    with pytest.raises(UsageError, match="runs no code from a model folder"):
        load_checkpoint(folder)
    change_config(folder, architectures=["LlamaForCausalLM"])
    assert isinstance(load_checkpoint(folder), transformers.LlamaForCausalLM)
    assert not (folder / "trap").exists()


# Mapped ----------------------------------------------------------------------------------------


def places(model: torch.nn.Module, files: tuple[Any, ...]) -> dict[str, str | None]:
    """The file that holds each parameter and buffer; ``None`` for one in memory."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    found = {}
    for name, tensor in tensors:
        held = [f for f in files if f.address <= tensor.data_ptr() < f.address + f.size]
        found[name] = held[0].path.name if held else None
    return found


def test_mapped_weights_stay_in_their_files(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mapped, loaded = map_checkpoint(folder), load_checkpoint(folder)
    assert type(mapped.model) is type(loaded)
    assert not mapped.model.training
    assert capfd.readouterr().err == ""
    found = places(mapped.model, mapped.files)
    assert found.pop("model.rotary_emb.inv_freq") is None
    assert found.pop("model.rotary_emb.original_inv_freq", None) is None
    assert set(found.values()) == {"model.safetensors"}
    ids = torch.tensor([[1, 7, 3], [4, 0, 9]])
    with torch.no_grad():
        assert torch.equal(mapped.model(ids).logits, loaded(ids).logits)


def test_shards_are_mapped_one_by_one_and_tied_weights_once(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path, max_shard_size="4KB")
    files = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert len(files) >= 3
    mapped = map_checkpoint(tmp_path)
    assert mapped.model.lm_head.weight is mapped.model.model.embed_tokens.weight
    found = set(places(mapped.model, mapped.files).values()) - {None}
    assert found == set(files)


def test_a_prefix_is_added_or_removed_as_transformers_does(folder: Path) -> None:
    change_config(folder, architectures=["LlamaModel"])
    mapped = map_checkpoint(folder)
    assert isinstance(mapped.model, transformers.LlamaModel)
    found = places(mapped.model, mapped.files)
    assert found["embed_tokens.weight"] == "model.safetensors"


def test_what_is_cast_or_merged_lies_in_memory(folder: Path, tmp_path: Path) -> None:
    change_config(folder, dtype="float32")
    assert set(places(*vars(map_checkpoint(folder)).values()).values()) == {None}
    config = transformers.MixtralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=3,
    )  # fmt: skip
    original = transformers.MixtralForCausalLM(config).eval()
    original.save_pretrained(tmp_path / "mixtral")
    mapped = map_checkpoint(tmp_path / "mixtral")
    found = places(mapped.model, mapped.files)
    in_memory = {name for name, _ in mapped.model.named_parameters() if found[name] is None}
    assert in_memory or not at_least("transformers", "5.0")  # which merges no experts
    assert all("experts" in name for name in in_memory)
    ids = torch.tensor([[1, 7, 3]])
    with torch.no_grad():
        assert torch.equal(mapped.model(ids).logits, original(ids).logits)


def test_mapping_refuses_what_loading_refuses(folder: Path) -> None:
    change_weights(folder, "lm_head.weight", torch.zeros(3, 16))
    shapes = r"as \[3, 16\].* has \[50, 16\]|in one shape, where .* has another"  # transformers 4
    with pytest.raises(UsageError, match=f"'lm_head.weight' ({shapes})"):
        map_checkpoint(folder)
    change_weights(folder, "lm_head.weight", None)
    with pytest.raises(UsageError, match=r"lacks 1 weights.*'lm_head.weight'"):
        map_checkpoint(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"cut short|damaged"):
        map_checkpoint(folder)


@pytest.mark.parametrize("load", [load_checkpoint, map_checkpoint])
@pytest.mark.parametrize(
    ("entry", "number"),
    [("num_hidden_layers", 10**400), ("n_layer", 2**40), ("depths", [2, 2**33]),
     ("text_config", {"num_experts": 10**9})],
)  # fmt: skip
def test_a_number_of_layers_that_no_model_has(
    folder: Path, load: Any, entry: str, number: Any
) -> None:
    change_config(folder, **{entry: number})
    with pytest.raises(UsageError, match="and no model has more than 100000"):
        load(folder)


@pytest.fixture
def unfilled(folder: Path) -> Path:
    """The folder with its config.json alone."""
    (folder / "model.safetensors").unlink()
    return folder


def test_a_configuration_alone_gives_random_weights(unfilled: Path, tmp_path: Path) -> None:
    assert not has_weights(unfilled)
    before = torch.get_rng_state()
    first, second = build_checkpoint(unfilled), build_checkpoint(unfilled)
    assert torch.equal(before, torch.get_rng_state())
    assert type(first).__name__ == "LlamaForCausalLM"
    assert not first.training
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)
    report = deliver(str(unfilled), tmp_path / "out")
    assert report.ok, report.problems
    assert report.data["steps"][0]["made"].endswith("parameters, random weights")
    made = [one for one in report.data["checks"] if one["inputs"] == "made" and one["outputs"]]
    assert len(made) >= 3
    assert any(one["sizes"]["batch_size"] == 1 for one in made)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf", "tf_model.h5"])
def test_weights_that_cannot_be_read_are_not_made_up(unfilled: Path, name: str) -> None:
    (unfilled / name).write_bytes(b"")
    assert has_weights(unfilled)
    with pytest.raises(UsageError, match=r"has no weights in \*.safetensors"):
        load_checkpoint(unfilled)


def test_a_configuration_of_a_class_that_is_not_there_is_refused(unfilled: Path) -> None:
    change_config(unfilled, architectures=["NoSuchModel"])
    with pytest.raises(UsageError, match="names NoSuchModel, which transformers"):
        build_checkpoint(unfilled)
