"""Modules over images."""

from __future__ import annotations

import torch
from torch import nn

__all__ = [
    "Autoencoder",
    "ConvNet",
    "DepthwiseNet",
    "GroupNormNet",
    "SuperResolution",
    "UNet",
    "Upsampler",
]

Tensor = torch.Tensor


def _block(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())


class ConvNet(nn.Module):
    """Convolutions, batch normalisation, pooling and a head: (batch, 3, H, W) → (batch, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(3, 8), nn.MaxPool2d(2), _block(8, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, image: Tensor) -> Tensor:
        """Classify images of any size."""
        pooled = nn.functional.adaptive_avg_pool2d(self.features(image), 1)
        labels: Tensor = self.head(pooled.flatten(1))
        return labels


class DepthwiseNet(nn.Module):
    """Depthwise convolutions, hard swish and a squeezed gate, as in MobileNet V3."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 5, padding=2, groups=8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.project = nn.Conv2d(8, 6, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Features of an image at half its size: (batch, 6, H / 2, W / 2)."""
        hidden = nn.functional.hardswish(self.norm(self.stem(image)))
        hidden = self.depthwise(hidden) + hidden
        gate = hidden.mean((2, 3), keepdim=True)
        gate = nn.functional.hardsigmoid(self.excite(nn.functional.relu(self.squeeze(gate))))
        result: Tensor = self.project(hidden * gate)
        return result


class GroupNormNet(nn.Module):
    """Group normalisation and SiLU with a residual, as in diffusion models."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(8, 16)

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        """Features of (batch, 3, H, W) at a time given as (batch, 8): (batch, 16, H, W)."""
        hidden = self.enter(image)
        shift = self.time(time)[:, :, None, None]
        inner = self.convolutions[0](nn.functional.silu(self.norms[0](hidden))) + shift
        inner = self.convolutions[1](nn.functional.silu(self.norms[1](inner)))
        result: Tensor = hidden + inner
        return result


class UNet(nn.Module):
    """Two levels down and up with skips; the way up follows the size of the skip."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_block(3, 8), _block(8, 16)])
        self.middle = _block(16, 16)
        self.up = nn.ModuleList([_block(32, 8), _block(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Label every pixel of (batch, 3, H, W): (batch, 2, H, W)."""
        skips = []
        hidden = image
        for block in self.down:
            hidden = block(hidden)
            skips.append(hidden)
            hidden = nn.functional.max_pool2d(hidden, 2)
        hidden = self.middle(hidden)
        for block, skip in zip(self.up, reversed(skips), strict=True):
            larger = nn.functional.interpolate(
                hidden, size=skip.shape[-2:], mode="bilinear", align_corners=False
            )
            hidden = block(torch.cat([larger, skip], 1))
        labels: Tensor = self.head(hidden)
        return labels


class Autoencoder(nn.Module):
    """Strided convolutions down to a code, transposed convolutions up; sides are multiples of 4.

    Returns the picture and the code.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(8, 4, 3, stride=2, padding=1),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(4, 8, 4, stride=2, padding=1), nn.ELU(),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Encode and decode (batch, 1, H, W)."""
        code = self.encoder(image)
        return self.decoder(code), code


class Upsampler(nn.Module):
    """Transposed convolutions with output padding, groups and dilation: a small generator."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1)
        self.second = nn.ConvTranspose2d(8, 4, 3, groups=2, dilation=2, padding=2)

    def forward(self, code: Tensor) -> Tensor:
        """Draw (batch, 6, H, W) at twice the size: (batch, 4, 2 H, 2 W)."""
        return torch.tanh(self.second(nn.functional.leaky_relu(self.first(code), 0.1)))


class SuperResolution(nn.Module):
    """Convolutions and a pixel shuffle: (batch, 1, H, W) → (batch, 1, 3 H, 3 W)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.PReLU(12), nn.Conv2d(12, 9, 3, padding=1)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge three times."""
        return nn.functional.pixel_shuffle(self.convolutions(image), 3)
