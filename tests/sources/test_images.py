from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.exporter.export import export
from torchferry.observer.given import ask_maker
from torchferry.sources.images import build_drawn, fit_sizes, image


class Pooled(nn.Module):
    """Takes images of any size that is at least `least`, in steps of `unit`, or of one size."""

    def __init__(self, least: int = 1, unit: int = 1, only: int | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.least, self.unit, self.only = least, unit, only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for size in x.shape[2:]:
            if size < self.least or size % self.unit or self.only not in (None, size):
                raise ValueError(f"a side of {size}")
        return self.convolution(x).relu().mean((2, 3))


def images(height: int, width: int, batch_size: int = 2) -> tuple[torch.Tensor]:
    return (image(3, batch_size, height, width),)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Pooled(), {"batch_size", "height", "width"}),
        (Pooled(unit=32), {"batch_size", "height", "width"}),
        (Pooled(least=64, unit=4), {"batch_size", "height", "width"}),
        (Pooled(only=224), {"batch_size"}),
        (Pooled(only=56), {"batch_size"}),
    ],
)
def test_a_model_says_by_running_which_sizes_it_takes(model: Pooled, names: set[str]) -> None:
    maker = fit_sizes(model, images, "a test", [(224, 224), (56, 56)])
    assert set(maker.names) == names
    seen = ask_maker(model, maker)
    assert len(seen.calls) >= 2
    assert set(seen.dynamic_names) == names
    for call in seen.calls:
        model(*call.args, **call.kwargs)


def test_a_model_of_one_size_is_not_asked_for_others() -> None:
    asked: list[torch.Size] = []

    class Strict(Pooled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked.append(x.shape)
            return super().forward(x)

    maker = fit_sizes(Strict(), images, "a test", [(56, 56)], free=())
    assert {tuple(shape[2:]) for shape in asked} == {(56, 56)}
    assert maker({"batch_size": 3})[0][0].shape == (3, 3, 56, 56)


def test_sizes_beside_those_of_the_image_keep_their_defaults() -> None:
    class Two(nn.Module):
        def forward(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
            return [one.mean((1, 2)) for one in images]

    def two(height: int, width: int, second_height: int = 40, second_width: int = 56) -> Any:
        return ([image(3, 1, height, width)[0], image(3, 1, second_height, second_width)[0]],)

    maker = fit_sizes(Two(), two, "a test")
    assert set(maker.names) == {"height", "width", "second_height", "second_width"}
    assert [tuple(one.shape) for one in maker({})[0][0]] == [(3, 96, 160), (3, 40, 56)]


@pytest.mark.parametrize("model", [Pooled().eval(), Pooled(only=56).eval()])
def test_its_inputs_make_an_export_that_verifies(model: Pooled) -> None:
    maker = fit_sizes(model, images, "a test", [(56, 56)])
    report = export(model, ask_maker(model, maker)).report
    assert report is not None
    assert report.ok
    tried = [
        check for check in report.data["checks"] if check["inputs"] == "made" and check["outputs"]
    ]
    assert len(tried) >= 3
    assert any(check["sizes"]["batch_size"] == 1 for check in tried)


def test_weights_are_drawn_the_same_each_time_and_leave_the_generator() -> None:
    before = torch.get_rng_state()
    first, second = (build_drawn(lambda: nn.Sequential(nn.Linear(4, 4))) for _ in range(2))
    assert torch.equal(first[0].weight, second[0].weight)
    assert not first.training
    assert torch.equal(before, torch.get_rng_state())
    assert first[0].weight.std() > 0.3


def test_images_depend_on_their_sizes_only() -> None:
    assert torch.equal(image(3, 2, 4, 5), image(3, 2, 4, 5))
    assert image(1, 2, 4, 5).shape == (2, 1, 4, 5)
