from __future__ import annotations

import sys

import pytest

from torchferry.errors import UsageError
from torchferry.zoo import build
from torchferry.zoo.library import check_transformers, import_transformers


def test_transformers_is_imported() -> None:
    assert import_transformers("zoo:tiny-llm").__name__ == "transformers"


def test_a_missing_transformers_says_what_needs_it_and_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"zoo:tiny-llm needs.*torchferry\[hf\]"):
        import_transformers("zoo:tiny-llm")


def test_an_older_transformers_is_named_with_the_command_that_helps(monkeypatch):
    transformers = import_transformers("a test")
    monkeypatch.setattr(transformers, "__version__", "5.9.1")
    said = r"zoo:mixtral needs transformers 5.10 or newer, and 5.9.1 is installed. Run pip"
    with pytest.raises(UsageError, match=said):
        build("mixtral")
    assert check_transformers("a test", "5.9") is transformers
    monkeypatch.setattr(transformers, "__version__", "5.10.0.dev0")
    assert check_transformers("a test", "5.10") is transformers
