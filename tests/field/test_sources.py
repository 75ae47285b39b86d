"""Sources whose packages are in the environment ``field`` only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.exporter.deliver import deliver
from torchferry.report.model import Report
from torchferry.sources import load_source


def check_verified(report: Report, *dynamic: str) -> None:
    """Equal at three unseen sizes or more, batch 1 among them; these dimensions are dynamic."""
    assert report.ok, report.problems
    made = [
        check for check in report.data["checks"] if check["inputs"] == "made" and check["outputs"]
    ]
    assert len(made) >= 3
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
    assert "random weights" in next(s["size"] for s in report.data["steps"])


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
