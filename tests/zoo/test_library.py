from __future__ import annotations

import sys

import pytest

from torchferry.errors import UsageError
from torchferry.zoo.library import import_transformers


def test_transformers_is_imported() -> None:
    assert import_transformers("zoo:tiny-llm").__name__ == "transformers"


def test_a_missing_transformers_says_what_needs_it_and_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"zoo:tiny-llm needs.*torchferry\[hf\]"):
        import_transformers("zoo:tiny-llm")
