"""tests/field has the models themselves."""

from __future__ import annotations

import sys

import pytest

from torchferry.errors import UsageError
from torchferry.sources.timm import load_timm


def test_without_the_package_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        UsageError, match=r"^timm:a needs timm, which is not installed: pip install timm$"
    ):
        load_timm("timm:a")
