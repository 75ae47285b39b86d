from __future__ import annotations

from torch import nn

from torchferry.sources.loaded import Loaded


def test_a_model_alone_came_with_nothing() -> None:
    loaded = Loaded(nn.Identity())
    assert (loaded.sets, loaded.program, loaded.files, loaded.note) == (None, None, (), "")
    assert not loaded.training
