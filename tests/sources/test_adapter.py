"""tests/field has adapters themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchferry.errors import UsageError
from torchferry.sources.adapter import is_adapter, load_adapter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adapter").mkdir()
    write(tmp_path / "adapter", base_model_name_or_path="org/model", peft_type="LORA")
    return tmp_path / "adapter"


@pytest.fixture
def with_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """These refusals come before the package is used."""
    monkeypatch.setitem(sys.modules, "peft", SimpleNamespace())


def write(folder: Path, **settings: str) -> None:
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def test_the_settings_tell_an_adapter(folder: Path) -> None:
    assert is_adapter(str(folder))
    assert not is_adapter(str(folder.parent))
    assert not is_adapter("")


def test_without_the_package_the_command_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UsageError, match=r"needs peft, which is not installed: pip install peft$"):
        load_adapter(str(folder))


@pytest.mark.usefixtures("with_package")
def test_pickled_weights_are_not_loaded(folder: Path) -> None:
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"no adapter_model.safetensors; torchferry loads no pick"
    ):
        load_adapter(str(folder))


@pytest.mark.usefixtures("with_package")
@pytest.mark.parametrize("name", ["org/model", ""])
def test_a_base_model_that_is_not_here_is_named(folder: Path, name: str) -> None:
    write(folder, base_model_name_or_path=name)
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match=f"base model '{name}', which is not a folder here.*set "):
        load_adapter(str(folder))


@pytest.mark.usefixtures("with_package")
def test_damaged_settings_are_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"adapter_config.json is no JSON"):
        load_adapter(str(folder))
