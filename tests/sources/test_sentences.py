from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.exporter.program import load
from torchferry.sources import load_source
from torchferry.sources.sentences import is_sentence_folder, load_sentences

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny BERT with the head of another task, as most checkpoints of encoders have it."""
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "st")
    return tmp_path / "st"


def add(folder: Path, *stages: tuple[str, dict[str, Any]]) -> Path:
    """Write ``modules.json`` and the folder of each module."""
    listed = [TRANSFORMER]
    for number, (kind, settings) in enumerate(stages, 1):
        place = folder / f"{number}_{kind}"
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(settings))
        listed.append({"idx": number, "path": place.name, "type": f"sentence_transformers.{kind}"})
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def embed(folder: Path) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Token embeddings by transformers alone, the mask, and what the folder's model gives."""
    loaded = load_sentences(str(folder))
    inputs = loaded.sets[1]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**inputs)[0], inputs["attention_mask"].bool(), loaded.model(**inputs)


def pool(way: str, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Pool a sentence after the other, by the definition."""
    rows = []
    for row, kept in zip(tokens, mask, strict=True):
        real = row[kept]
        weights = torch.arange(1, len(real) + 1).unsqueeze(-1)
        rows.append({
            "cls": real[0], "max": real.amax(0), "mean": real.mean(0), "lasttoken": real[-1],
            "mean_sqrt_len_tokens": real.sum(0) / len(real) ** 0.5,
            "weightedmean": (real * weights).sum(0) / weights.sum(),
        }[way])  # fmt: skip
    return torch.stack(rows)


WAYS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_pooling_is_that_of_its_definition(folder: Path, way: str) -> None:
    tokens, mask, outputs = embed(add(folder, ("Pooling", {"pooling_mode": way})))
    assert list(outputs) == ["token_embeddings", "sentence_embedding"]
    torch.testing.assert_close(outputs["token_embeddings"], tokens)
    torch.testing.assert_close(outputs["sentence_embedding"], pool(way, tokens, mask))


def test_flags_of_older_versions_stand_side_by_side(folder: Path) -> None:
    flags = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True,
             "pooling_mode_cls_token": True, "pooling_mode_max_tokens": False}  # fmt: skip
    tokens, mask, outputs = embed(add(folder, ("Pooling", flags)))
    expected = torch.cat([pool("cls", tokens, mask), pool("mean", tokens, mask)], -1)
    torch.testing.assert_close(outputs["sentence_embedding"], expected)


def test_what_follows_the_pooling_is_applied(folder: Path) -> None:
    dense = {"in_features": 16, "out_features": 5,
             "activation_function": "torch.nn.modules.activation.Tanh"}  # fmt: skip
    stages = (("Pooling", {"pooling_mode": "mean"}), ("Dense", dense), ("LayerNorm",
              {"dimension": 5}), ("Dropout", {"dropout": 0.1}), ("Normalize", {}))  # fmt: skip
    add(folder, *stages)
    weight, bias, scale = torch.rand(5, 16), torch.rand(5), torch.rand(5)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense/model.safetensors")
    norm = {"norm.weight": scale, "norm.bias": torch.zeros(5)}
    save_file(norm, folder / "3_LayerNorm/model.safetensors")
    tokens, mask, outputs = embed(folder)
    x = torch.tanh(pool("mean", tokens, mask) @ weight.T + bias)
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    x = x * scale
    expected = x / x.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(outputs["sentence_embedding"], expected)


def test_the_folder_is_exported_with_pooling_inside(folder: Path, tmp_path: Path) -> None:
    add(folder, ("Pooling", {"pooling_mode": ["mean", "lasttoken"]}), ("Normalize", {}))
    report = deliver(str(folder), tmp_path / "out")
    assert report.ok, report.problems
    made = [one for one in report.data["checks"] if one["inputs"] == "made" and one["outputs"]]
    assert len(made) >= 3
    assert any(one["sizes"]["batch_size"] == 1 for one in made)
    assert {one["name"]: one["status"] for one in report.data["dimensions"]} == {
        "batch_size": "verified", "sequence_length": "verified"
    }  # fmt: skip
    names = [value.name for value in load(tmp_path / "out").model.graph.outputs]
    assert names == ["token_embeddings", "sentence_embedding"]


def test_its_weights_can_stay_in_their_file(folder: Path) -> None:
    source = load_source(str(add(folder, ("Pooling", {}))), mapped=True)
    (file,) = source.files
    inside = range(file.address, file.address + file.size)
    assert all(
        p.data_ptr() in inside for n, p in source.model.named_parameters() if "pool" not in n
    )


def test_a_folder_without_the_list_is_an_ordinary_one(folder: Path) -> None:
    assert not is_sentence_folder(str(folder))
    assert is_sentence_folder(str(add(folder, ("Pooling", {}))))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((("CNN", {}),), r"has a module 'CNN'; torchferry reads Transformer followed by Pooling"),
        ((("Pooling", {"pooling_mode": "median"}),), "pools by median; torchferry knows cls, max"),
        ((("Pooling", {"pooling_mode_median": True}),), "pools by median"),
        ((("Dense", {"in_features": 4}),), "has no size 'out_features'"),
        (
            (("Dense", {"in_features": 4, "out_features": 4, "activation_function": "os.kill"}),),
            "has activation_function os.kill, which torchferry does not read",
        ),
        (
            (("Dense", {"in_features": 4, "out_features": 4,
                        "activation_function": "torch.nn.modules.activation.Tanh"}),),
            "has no model.safetensors; save the model again",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(
    folder: Path, stages: tuple[tuple[str, dict[str, Any]], ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        load_sentences(str(add(folder, *stages)))
    assert len(str(raised.value).splitlines()) == 1


def test_another_first_module_is_named(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"idx": 0, "path": "", "type": "x.StaticEmbedding"}]')
    with pytest.raises(UsageError, match="has a module 'StaticEmbedding'"):
        load_sentences(str(folder))


@pytest.mark.parametrize("text", ["[", "{}", '["Pooling"]'])
def test_a_damaged_list_is_refused(folder: Path, text: str) -> None:
    (folder / "modules.json").write_text(text)
    with pytest.raises(UsageError, match=r"modules.json (is no JSON|lists no modules)"):
        load_sentences(str(folder))
