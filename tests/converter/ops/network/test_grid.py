"""Grid sampling against eager: modes, padding, two and three dimensions."""

import pytest
import torch
from op_case import check, export
from torch import nn

from families import in_turn
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
f = nn.functional
r = torch.randn

FLAT = (r(2, 3, 5, 6), r(2, 4, 7, 2)), (r(1, 3, 8, 4), r(1, 3, 3, 2) * 1.5)
DEEP = (r(2, 3, 5, 6, 4), r(2, 4, 7, 3, 3)), (r(1, 3, 8, 4, 5), r(1, 3, 3, 2, 3) * 1.5)


PADDING = [(padding, corners) for padding in ("zeros", "border", "reflection")
           for corners in (False, True)]  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(("mode", "opset"), in_turn(["bilinear", "nearest", "bicubic"], [20, 18]))
def test_images(mode, opset):
    check(lambda x, grid: [f.grid_sample(x, grid, mode, *padding) for padding in PADDING], *FLAT,
          target=aten.grid_sampler.default, opset=opset, tolerance=2e-5)  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(mode):
    check(lambda x, grid: [f.grid_sample(x, grid, mode, *padding) for padding in PADDING], *DEEP,
          target=aten.grid_sampler.default, tolerance=2e-5)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "sets"),
    [(aten.grid_sampler_2d.default, FLAT), (aten.grid_sampler_3d.default, DEEP)],
)
def test_the_kernels(target, sets):
    check(lambda x, grid: target(x, grid, 0, 0, False), *sets, target=target, tolerance=2e-5)


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grids(align_corners):
    def flat(theta):
        return f.affine_grid(theta, (theta.shape[0], 3, 4, 5), align_corners)

    def deep(theta):
        return f.affine_grid(theta, (theta.shape[0], 3, 4, 5, 6), align_corners)

    target = aten.affine_grid_generator.default
    check(flat, (r(2, 2, 3),), (r(1, 2, 3),), target=target)
    check(deep, (r(2, 3, 4),), (r(1, 3, 4),), target=target)


def test_what_an_old_opset_lacks_is_refused():
    program = export(lambda x, grid: f.grid_sample(x, grid, align_corners=False), DEEP[0])
    with pytest.raises(LoweringFailed, match="need opset 20"):
        translate(program, 18)
    program = export(lambda theta: f.affine_grid(theta, (2, 3, 4, 5), False), (r(2, 2, 3),))
    with pytest.raises(LoweringFailed, match="needs opset 20"):
        translate(program, 18)


FAR = [float("nan"), float("inf"), -float("inf"), 3e9, -1e30]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mode", "dims"),
    [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)],
)
@pytest.mark.parametrize("size", [1, 4])
def test_points_without_a_place(mode, dims, size):
    """Of 0 / (width - 1), as an image of one column gives; far ones in a mirror are rounding."""

    def body(x, grid):
        undefined = grid[:, :3]
        ways = [(p, c) for p, c in PADDING if p != "reflection"]
        return [f.grid_sample(x, grid, mode, *way) for way in ways] + [
            f.grid_sample(x, undefined, mode, "reflection", corners) for corners in (False, True)
        ]

    sets = []
    for place in range(dims):
        grid = torch.zeros(1, len(FAR), *[1] * (dims - 1), dims)
        grid[0, :, ..., place] = torch.tensor(FAR).reshape(-1, *[1] * (dims - 1))
        sets.append((r(1, 2, *[size] * dims), grid))
    check(body, *sets, target=aten.grid_sampler.default, tolerance=2e-5)
