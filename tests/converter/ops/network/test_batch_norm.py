"""Batch normalization against eager: evaluated, and in training where nothing else changes."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter import convert
from torchferry.errors import ConversionError

aten = torch.ops.aten
r = torch.randn


def trained(module):
    """With weights and statistics that are not zeros and ones."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_floating_point:
            nn.init.uniform_(tensor, 0.5, 1.5)
    return module.eval()


STATISTICS = (r(3), r(3), r(3), torch.rand(3) + 0.5)
CASES = [
    (aten.batch_norm.default, trained(nn.BatchNorm1d(3)), [(r(2, 3),), (r(1, 3),), (r(0, 3),)]),
    (aten.batch_norm.default, trained(nn.BatchNorm2d(3, 0.1)),
     [(r(2, 3, 4, 5),), (r(1, 3, 6, 5),)]),
    (aten.batch_norm.default, trained(nn.BatchNorm3d(3, affine=False)), [(r(2, 3, 4, 5, 2),)]),
    (aten.batch_norm.default, trained(nn.BatchNorm1d(3)).half(), [(r(2, 3).half(),)]),
    (aten.batch_norm.default, trained(nn.BatchNorm1d(3)).double(), [(r(2, 3, 4).double(),)]),
    (aten.batch_norm.default, nn.BatchNorm1d(3, track_running_stats=False),
     [(r(4, 3, 5),), (r(2, 3, 5),)]),
    (aten.native_batch_norm.default,
     lambda x, w, v, m, s: torch.native_batch_norm(x, w, v, m, s, False, 0.1, 1e-5),
     [(r(2, 3, 4), *STATISTICS)]),
    (aten.native_batch_norm.default,
     lambda x, w: torch.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5),
     [(r(4, 3, 2), r(3)), (r(2, 3, 2), r(3))]),
    (aten._native_batch_norm_legit.no_stats,
     lambda x, w: aten._native_batch_norm_legit.no_stats(x, w, None, True, 0.1, 1e-5),
     [(r(4, 3, 2), r(3))]),
    (aten._native_batch_norm_legit_no_training.default,
     lambda x, w, v, m, s: aten._native_batch_norm_legit_no_training(x, w, v, m, s, 0.1, 1e-5),
     [(r(2, 3, 4), *STATISTICS)]),
    (aten._native_batch_norm_legit_functional.default,
     lambda x, w, v, m, s: aten._native_batch_norm_legit_functional(
         x, w, v, m, s, True, 0.1, 1e-5), [(r(4, 3, 5), *STATISTICS), (r(2, 3, 5), *STATISTICS)]),
    (aten._native_batch_norm_legit_functional.default,
     lambda x, w, v, m, s: aten._native_batch_norm_legit_functional(
         x, w, v, m, s, False, 0.1, 1e-5), [(r(4, 3), *STATISTICS)]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, v, m, s: nn.functional.batch_norm(x, m, s, w, v, training=True),
        lambda x, w, v, m, s: torch.native_batch_norm(x, w, v, m, s, True, 0.1, 1e-5),
    ],
)
def test_statistics_that_would_be_updated_unseen_are_refused(function):
    program = export(function, (r(4, 3), *STATISTICS))
    said = r"writes to input \w+, input|updates its running statistics in training mode"
    with pytest.raises(ConversionError, match=said):
        convert(program)
