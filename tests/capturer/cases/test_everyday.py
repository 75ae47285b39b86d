"""Small models in the shape of problems people report: captured, and right at other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor


class IntegerMask(nn.Module):
    """``1.0 - mask`` of integers: pytorch/pytorch#194381."""

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        return (scores + ((1.0 - mask) * -1e4)[:, None, :]).softmax(-1)


class Powers(nn.Module):
    """A float base and an integer exponent: microsoft/onnxscript#3036."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 2.0**x, 0.5 ** x.to(torch.int32)


class BatchOfOne(nn.Module):
    """Exported with a batch of 1, run with more: pytorch/pytorch#157621."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.adaptive_avg_pool2d(self.norm(self.conv(x)).relu(), (4, 4))
        return self.head(y.view(y.size(0), -1))


class Positions(nn.Module):
    """A learnt table, sliced and expanded: pytorch/pytorch#171618."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 12, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.table[:, : x.size(1)].expand(x.size(0), -1, -1) + x.unsqueeze(-1)


class PadToMultiple(nn.Module):
    """Height and width padded, halved, doubled and cropped: microsoft/onnxscript#2539."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        y = functional.pad(x, (0, -width % 8, 0, -height % 8), mode="replicate")
        y = self.first(y).relu()
        small = functional.interpolate(functional.max_pool2d(y, 2), scale_factor=2)
        return self.last(torch.cat([y, small], 1))[..., :height, :width]


class Anchors(nn.Module):
    """A detection head over a grid: pytorch/pytorch#170180."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(3, 18, 3, stride=8, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        p = self.net(image)
        batch, _, height, width = p.shape
        p = p.view(batch, 3, 6, height, width).permute(0, 1, 3, 4, 2)
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centre = (p[..., :2].sigmoid() + torch.stack((x, y), -1)) * 8
        return torch.cat([centre, p[..., 2:].exp()], -1).reshape(batch, -1, 6)


class AdaptivePool(nn.Module):
    """Pooling to a size that does not divide: silently wrong elsewhere, with torch.onnx."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(x, (3, 5))


class Resized(nn.Module):
    """Antialiasing, and the size of another image: pytorch/pytorch#183546."""

    def forward(self, x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        small = functional.interpolate(x, size=(5, 7), mode="bilinear", antialias=True)
        return small, functional.interpolate(x, size=like.shape[-2:], mode="bicubic")


class Windows(nn.Module):
    """Partition into windows, shift and back."""

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        x = torch.roll(x, (-2, -2), (1, 2)).view(batch, height // 4, 4, width // 4, 4, channels)
        x = x.transpose(2, 3).reshape(-1, 16, channels).softmax(1)
        x = x.view(batch, height // 4, width // 4, 4, 4, channels).transpose(2, 3)
        return torch.roll(x.reshape(batch, height, width, channels), (2, 2), (1, 2))


class Optional(nn.Module):
    """Inputs that are absent, a flag, a dictionary: pytorch/pytorch#143124."""

    def forward(
        self, x: Tensor, kinds: Tensor | None = None, extra: Tensor | None = None,
        double: bool = True,
    ) -> dict[str, Tensor]:  # fmt: skip
        y = x if kinds is None else x + kinds
        return {"y": y, "double": y * 2 if double else y}


class Assigns(nn.Module):
    """Columns set by an index, rows by a mask: huggingface/transformers#41992."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("banned", torch.tensor([1, 4, 5]))

    def forward(self, logits: Tensor, mask: Tensor) -> Tensor:
        out = logits.clone()
        out[:, :, self.banned] = -1e4
        out[mask] = 0
        return out.softmax(-1)


class Tied(nn.Module):
    """One weight in two places: huggingface/optimum#1326."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids).cumsum(1))


class Bidirectional(nn.Module):
    """Two LSTMs, one on the reversed sequence: pytorch/pytorch#191855."""

    def __init__(self) -> None:
        super().__init__()
        self.there = nn.LSTM(5, 6, batch_first=True)
        self.back = nn.LSTM(5, 6, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask = (torch.arange(x.size(1)) < lengths[:, None])[..., None].to(x.dtype)
        there, back = self.there(x * mask)[0], self.back((x * mask).flip(1))[0]
        return torch.cat([there, back.flip(1)], -1) * mask


class Spectrum(nn.Module):
    """A long convolution by FFT: pytorch/pytorch#113444."""

    def forward(self, u: Tensor) -> Tensor:
        n = 2 * u.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(u, n=n), n=n)


class Groups(nn.Module):
    """Attention with fewer key heads than query heads: pytorch/pytorch#151762."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


class Hidden(nn.Module):
    """Rows that see nothing: microsoft/onnxruntime#13798."""

    def forward(self, q: Tensor, keep: Tensor) -> Tensor:
        causal = torch.ones(q.size(2), q.size(2), dtype=torch.bool).tril()
        bias = torch.zeros(q.size(0), 1, q.size(2), q.size(2))
        bias = bias.masked_fill(~(causal & keep[:, None, None]), torch.finfo(q.dtype).min)
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)


class Repeats(nn.Module):
    """A length regulator: pytorch/pytorch#156873."""

    def forward(self, x: Tensor, durations: Tensor) -> Tensor:
        return torch.repeat_interleave(x, durations, dim=0)


class Packed(nn.Module):
    """Packed int4 weights: pytorch/pytorch#119621."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (8, 8), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.packed.bitwise_and(15), self.packed.bitwise_right_shift(4)
        return x @ (torch.stack([low, high], -1).flatten(1).to(x.dtype) - 8).t()


class Counted(nn.Module):
    """Operators that few exporters know: huggingface/transformers#41992."""

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        edges = torch.tensor([-1.0, 0.0, 2.0])
        return torch.bucketize(x, edges), labels.bincount(minlength=5), x.cummax(1).values


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * x.sigmoid()


class Custom(nn.Module):
    """A function with its own backward: pytorch/pytorch#135645."""

    def forward(self, x: Tensor) -> Tensor:
        return Swish.apply(x)


@dataclass
class Scored:
    scores: Tensor
    best: Tensor


class KeywordsAndDataclass(nn.Module):
    """Only keywords in, a dataclass of the user's out."""

    def forward(self, *, x: Tensor, weight: Tensor) -> Scored:
        scores = x * weight
        return Scored(scores, scores.argmax(-1))


def _integers(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape)


R = torch.randn
CASES: dict[type[nn.Module], Any] = {
    IntegerMask: lambda b, s: (R(b, s, s), _integers(2, b, s)),
    Powers: lambda b, s: (_integers(5, b, s),),
    BatchOfOne: lambda b, _: (R(b, 3, 16, 16),),
    Positions: lambda b, s: (R(b, s),),
    PadToMultiple: lambda b, s: (R(b, 3, 8 + s, 19 + 2 * s),),
    Anchors: lambda b, s: (R(b, 3, 8 * s, 40),),
    AdaptivePool: lambda b, s: (R(b, 2, 6 + s, 9 + 2 * s),),
    Resized: lambda b, s: (R(b, 1, 8 + s, 20), R(b, 1, 24 + s, 30 + 3 * s)),
    Windows: lambda b, s: (R(b, 4 * s, 4 * s + 8, 3),),
    Optional: lambda b, _: {"x": R(b, 4), "extra": R(b)},
    Assigns: lambda b, s: (R(b, s, 8), _integers(2, b, s).bool()),
    Tied: lambda b, s: (_integers(50, b, s),),
    Bidirectional: lambda b, s: (R(b, s, 5), torch.randint(1, s + 1, (b,))),
    Spectrum: lambda b, s: (R(b, 8 + s),),
    Groups: lambda b, s: (R(b, 8, s, 4), R(b, 2, s + 3, 4), R(b, 2, s + 3, 4),
                          torch.ones(s, s + 3, dtype=torch.bool).tril(3)),
    Hidden: lambda b, s: (R(b, 2, s, 4), torch.arange(s).ge(s // 2).expand(b, s)),
    Repeats: lambda _, s: (R(s, 3), _integers(4, s)),
    Packed: lambda b, _: (R(b, 16),),
    Counted: lambda b, s: (R(b, s), _integers(5, 9 + s)),
    Custom: lambda b, _: (R(b, 3),),
    KeywordsAndDataclass: lambda b, s: {"weight": R(s), "x": R(b, s)},
}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("model", CASES, ids=lambda model: model.__name__)
def test_right_at_every_size(model, captured):
    torch.manual_seed(0)
    sets = [CASES[model](batch, size) for batch, size in ((1, 4), (3, 7), (2, 9))]
    found = captured(model(), sets)
    assert found.registered == ((f"{__name__}:Scored",) if model is KeywordsAndDataclass else ())


def test_height_that_differs_from_width_and_named_arguments_in_any_order(captured):
    class Image(nn.Module):
        def forward(self, image: Tensor, scale: Tensor) -> Tensor:
            return image.mean(-1) * scale

    sets = [{"scale": R(h), "image": R(b, h, w)} for b, h, w in ((2, 5, 7), (1, 8, 3))]
    captured(Image(), sets)


def test_a_buffer_that_forward_updates_is_an_output_of_the_program():
    from torchferry.capturer import capture
    from torchferry.observer import Observation

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(x.sum(0))
            return x * self.count

    model = Counts()
    sets = [((R(n, 4),), {}) for n in (2, 5)]
    found = capture(model, Observation.from_inputs(model, sets))
    functional_program = found.program.run_decompositions({})
    assert list(functional_program.graph_signature.buffers_to_mutate.values()) == ["count"]
    assert model.count.tolist() == [0] * 4
