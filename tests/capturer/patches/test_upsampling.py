"""What upsamples without copies; a whole network of diffusers is in tests/field."""

from types import SimpleNamespace

import pytest
import torch

from torchferry.capturer.patches.upsampling import PATCHES

(PATCH,) = PATCHES


def upsampler(**other):
    plain = {"norm": None, "use_conv_transpose": False, "interpolate": True, "use_conv": True}
    conv = torch.nn.Conv2d(2, 2, 3, padding=1)
    return SimpleNamespace(**{**plain, "name": "conv", "conv": conv, **other})


@pytest.mark.parametrize("size", [None, (5, 9)])
def test_it_interpolates_and_convolves(size):
    one, x = upsampler(), torch.rand(70, 2, 3, 4)
    got = PATCH.replace(None)(one, x, size)
    by = {"scale_factor": 2.0} if size is None else {"size": size}
    torch.testing.assert_close(got, one.conv(torch.nn.functional.interpolate(x, **by)))
    other = upsampler(use_conv=False)
    assert PATCH.replace(None)(other, x, size).shape == got.shape
    named = upsampler(name="Conv2d_0", Conv2d_0=one.conv)
    torch.testing.assert_close(PATCH.replace(None)(named, x, size), got)


def test_other_ways_are_left_to_upstream():
    x = torch.rand(1, 2, 3, 4)
    assert PATCH.acts(upsampler(), x)
    assert PATCH.acts(upsampler(), x, (5, 9))
    for other in (
        {"norm": torch.nn.Identity()},
        {"use_conv_transpose": True},
        {"interpolate": False},
    ):
        assert not PATCH.acts(upsampler(**other), x)
    assert not PATCH.acts(upsampler(), x, scale=1.0)
