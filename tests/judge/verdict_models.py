"""Small models whose export is right, wrong, rounded, random or of another choice.

`exported` is a function that gives one thing when it is called and another when it is traced. No
tracer looks into it, so that capture, export, compare, diagnose and the compile backend all meet
the second, and hold it to the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from torchferry.judge import Kind

__all__ = ["CASES", "Case"]

Run = Callable[[nn.Module, torch.Tensor], Any]


@torch._dynamo.allow_in_graph
def exported(right: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """What is right, or what an export has in its place."""
    return right if type(right) is torch.Tensor else other


_COUNT = itertools.count(1)


@torch._dynamo.allow_in_graph
def counted(x: torch.Tensor) -> torch.Tensor:
    """Another number each time, which an export has once and for all."""
    return x * next(_COUNT)


class Model(nn.Module):
    """A layer, and a function of what it gives."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(48, 48)
        self.run = run

    def forward(self, x: torch.Tensor) -> Any:
        """Run the function on the layer's output."""
        return self.run(self, x)


@dataclass(frozen=True)
class Case:
    """A model and the verdict that every command has to give.

    Attributes:
        name: of the case.
        kind: of the verdict.
        run: what the model computes.
        train: whether it is in training mode.
        says: words of the evidence.
        dtype: of the model and its inputs.
    """

    name: str
    kind: Kind
    run: Run
    train: bool = False
    says: str = ""
    dtype: torch.dtype = torch.float32

    def model(self) -> nn.Module:
        """The model, anew."""
        return Model(self.run).to(self.dtype).train(self.train)

    def sets(self) -> list[tuple[torch.Tensor]]:
        """Inputs of three sizes."""
        generator = torch.Generator().manual_seed(0)
        sizes = (4, 7, 3)
        return [(torch.randn(n, 48, generator=generator).to(self.dtype),) for n in sizes]


def _channel(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return exported(y, torch.cat([y[:, :5], y[:, 5:6] + 0.3, y[:, 6:]], 1))


def _one_size(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return exported(y, y + 0.3 * (torch.ones_like(x[:, 0]).sum() == 7).to(y.dtype))


def _nan(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return exported(y, torch.where(y > 1.2, torch.nan, y))


def _cancels(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = x.abs() / 4
    return exported((y * 1.1 + 16000) - 16000, y * 1.1)


def _cancels_wrong(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = x.abs() / 4
    return exported((y * 1.1 + 16000) - 16000, y * 1.1 + 0.05)


def _nothing_left(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(x)
    return exported((y + 1) - y - 1, y * 0)


def _large(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    huge = (torch.cat([y, y[:, :1] * 0 + 3e5], 1).cumsum(1) - 3e5)[:, :-1] * 1.0
    shifted = (y + 3e4).cumsum(1) - torch.arange(1, 49) * 3e4
    return exported(shifted, y.cumsum(1) + 0 * huge)


def _router(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    limit = torch.full_like(x, 0.3)
    return exported(
        torch.where(limit * 1.1 - 0.33 >= limit * 0, x + 1, x),
        torch.where(limit * 1.1 - 0.33 < limit * 0, x + 1, x),
    )


def _tied(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Places of the largest, of equal ones others than PyTorch takes."""
    right = scores.topk(count).indices
    other = scores.shape[-1] - 1 - scores.flip(-1).topk(count).indices
    return exported(right, torch.where(other == right, (right + 1) % scores.shape[-1], other))


def _topk(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x.gather(1, _tied((x * 0) - 1.5, 3))


def _topk_wrong(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return exported(x.gather(1, ((x * 0) - 1.5).topk(3).indices), x[:, :3] * 50 + 90)


def _argmax(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    scores = x * 0 + 0.7
    place = exported(scores.argmax(-1, keepdim=True), x[:, :1].long() * 0 + 40)
    return m.linear(x).gather(1, place)


def _places(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    scores = x * 0 + 0.7
    return exported(scores.argmax(-1), x[:, 0].long() * 0 + 40)


def _sort(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    ranks = torch.round(x * 0 + 2.5)
    order = exported(ranks.argsort(-1), ranks.argsort(-1).flip(-1))
    return x.gather(1, order)


def _near(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    scores = torch.cat([x[:, :5] * 0 + 0.7, x[:, 5:6] * 0 + 0.7000001, x[:, 6:] * 0], 1)
    place = exported(scores.argmax(-1, keepdim=True), x[:, :1].long() * 0 + 2)
    return x.gather(1, place)


def _half(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x.half(), m.linear.weight.half()).float()


def _half_wrong(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = F.linear(x.half(), m.linear.weight.half()).float()
    return exported(y, y * 1.2)


def _half_exact(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return exported((x.half() * 1.1).float(), x * 1.1)


def _autocast(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
    return exported(y.float(), m.linear(x))


def _drops_other(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = _drops(m, x.abs())
    return exported(y, y * 3)


def _drops(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * torch.bernoulli(torch.full_like(x, 0.5)) * 2


def _linear(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x)


def _nested(m: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    y = m.linear(x)
    return {"y": y, "more": (y.softmax(-1), y.argmax(-1))}


def _attention(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    q = m.linear(x)[None, None]
    return F.scaled_dot_product_attention(q, q * 0.5, q + 1)[0, 0]


_CONSTANT = "returns the same in every run"
_TIE = "equal scores (a tie) at "

CASES = (
    Case("linear", "equal", _linear),
    Case("nested", "equal", _nested),
    Case("attention", "equal", _attention),
    Case("eval_dropout", "equal", lambda m, x: F.dropout(m.linear(x), 0.5, m.training)),
    Case("half_weights", "equal", _linear, dtype=torch.float16),
    Case("factor", "differs", lambda m, x: exported(m.linear(x), m.linear(x) * 1.05)),
    Case("slightly_off", "differs", lambda m, x: exported(m.linear(x), m.linear(x) + 2e-3)),
    Case("channel", "differs", _channel),
    Case("one_size", "differs", _one_size),
    Case("nan", "differs", _nan),
    Case("integer", "differs", lambda m, x: exported(x.argmax(-1), x.argmax(-1) + 1)),
    Case("sign", "differs", lambda m, x: exported(x > 0, x >= 0.05)),
    Case("cancels_wrong", "differs", _cancels_wrong),
    Case("cancels", "rounding", _cancels),
    Case("nothing_left", "rounding", _nothing_left),
    Case("large", "rounding", _large),
    Case("router", "rounding", _router),
    Case("topk", "random", _topk, says=_TIE + "topk"),
    Case("topk_wrong", "differs", _topk_wrong),
    Case("argmax", "random", _argmax, says=_TIE + "argmax"),
    Case("places", "random", _places, says=_TIE + "argmax"),
    Case("sort", "random", _sort, says=_TIE),
    Case("near", "random", _near, says=_TIE + "argmax"),
    Case("half_inside", "equal", _half),
    Case("half_exact", "equal", _half_exact, says="computes in float16 inside"),
    Case("half_wrong", "differs", _half_wrong),
    Case("autocast", "equal", _autocast, says="computes in bfloat16 inside"),
    Case("drops", "random", _drops, True, "draw"),
    Case("noise", "random", lambda m, x: x + torch.randn_like(x), says="draw"),
    Case("bernoulli", "random", lambda m, x: torch.bernoulli(torch.sigmoid(x)), says="draw"),
    Case("drops_other", "differs", _drops_other, says="not from the same distribution"),
    Case("constant", "differs", lambda m, x: exported(torch.rand_like(x), x * 0 + 0.5),
         says=_CONSTANT),
    Case("counter", "differs", lambda m, x: counted(x), says="a counter) is a constant"),
    Case("unset", "random", lambda m, x: exported(torch.empty_like(x), x * 0 + 5),
         says="nothing was written"),
)  # fmt: skip
