from __future__ import annotations

import pytest
import torch

from torchferry.zoo.modules.image import (
    Autoencoder,
    ConvNet,
    DepthwiseNet,
    GroupNormNet,
    SuperResolution,
    UNet,
    Upsampler,
)


@pytest.mark.parametrize(
    ("module", "inputs", "shape"),
    [
        (ConvNet(), (torch.ones(2, 3, 10, 14),), (2, 5)),
        (DepthwiseNet(), (torch.ones(2, 3, 10, 14),), (2, 6, 5, 7)),
        (GroupNormNet(), (torch.ones(2, 3, 5, 7), torch.ones(2, 8)), (2, 16, 5, 7)),
        (UNet(), (torch.ones(2, 3, 11, 14),), (2, 2, 11, 14)),
        (Upsampler(), (torch.ones(2, 6, 3, 5),), (2, 4, 6, 10)),
        (SuperResolution(), (torch.ones(2, 1, 4, 5),), (2, 1, 12, 15)),
    ],
)
def test_shapes(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shape: tuple[int, ...]
) -> None:
    assert module.eval()(*inputs).shape == shape


def test_an_autoencoder_returns_the_size_it_was_given() -> None:
    picture, code = Autoencoder()(torch.ones(2, 1, 8, 12))
    assert picture.shape == (2, 1, 8, 12)
    assert code.shape == (2, 4, 2, 3)
