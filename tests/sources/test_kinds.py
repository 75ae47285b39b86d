from __future__ import annotations

from pathlib import Path

import pytest

from torchferry.errors import UsageError
from torchferry.sources.kinds import KINDS, read_model


def kind_of(text: str) -> int:
    return next((n for n, kind in enumerate(KINDS) if kind.accepts(text)), -1)


def test_each_text_is_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("filled").mkdir()
    Path("filled/config.json").write_text("{}")
    Path("filled/model.safetensors").write_bytes(b"")
    Path("unfilled").mkdir()
    Path("unfilled/config.json").write_text("{}")
    marks = {"adapter": "adapter_config.json", "sentences": "modules.json",
             "pipeline": "model_index.json"}  # fmt: skip
    for folder, mark in marks.items():
        Path(folder).mkdir()
        (Path(folder) / mark).write_text("{}")
    texts = ["zoo:mlp", *marks, "torchvision:resnet18", "timm:resnet18", "filled", "unfilled",
             "a.pt2", "package.module:make"]  # fmt: skip
    assert len({kind_of(text) for text in texts}) == len(texts)
    assert kind_of("pipeline:unet") == kind_of("pipeline")
    assert kind_of("file.py:make") == kind_of("package.module:make")
    assert kind_of("torchvision.models:resnet18") == kind_of("package.module:make")


@pytest.mark.parametrize("text", ["", "nowhere", "org/model", "https://example.com/model"])
def test_a_text_of_no_kind_lists_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_model(text)
    assert all(kind.form in str(raised.value) for kind in KINDS)


def test_only_a_folder_leaves_its_weights_in_files() -> None:
    with pytest.raises(UsageError, match=r"needs a Hugging Face model folder.*'zoo:mlp' is none"):
        read_model("zoo:mlp", mapped=True)
