"""diffusers: a network that upsamples, for batches of any size."""

import pytest
import torch

import torchferry

diffusers = pytest.importorskip("diffusers", exc_type=ImportError)


def sets(*sizes):
    return [{"sample": torch.randn(b, 3, h, w)} for b, h, w in sizes]


def test_an_autoencoder_has_no_largest_batch():
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(
        block_out_channels=(4, 8),
        norm_num_groups=2,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    ).eval()
    program = torchferry.export(model, sets((2, 8, 12), (3, 12, 8)), progress=False)
    assert program.report.ok, program.report.problems
    limits = [one["condition"] for one in program.report.data["conditions"] if one["limit"]]
    assert not any("batch_size" in text for text in limits)
    (large,) = sets((65, 4, 6))
    with torch.no_grad():
        want = model(**large).sample
    torch.testing.assert_close(program(**large)["sample"], want, rtol=1e-3, atol=1e-4)
