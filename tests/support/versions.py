"""What tests ask of the installed versions."""

from __future__ import annotations

import pytest

from torchferry.graph.runtime import Ability, has, installed

__all__ = ["can", "needs"]


def can(ability: Ability) -> bool:
    """Whether the installed onnxruntime can do it."""
    return has(installed(), ability)


def needs(ability: Ability) -> pytest.MarkDecorator:
    """Skip a test, with what an older onnxruntime does for the reason."""
    return pytest.mark.skipif(not can(ability), reason=ability.before)
