"""Covariance and correlation against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore:cov.*degrees of freedom")


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(3, 7), (1, 5), (6,), (4, 1)])
def test_fixed_sizes(dtype, shape):
    """Of dynamic ones the patch's own tests tell: torch cannot trace the operator alone."""
    from torchferry.capturer import torch_export_patches

    x = (torch.randn(shape) * 5).to(dtype)
    limit = 2e-3 if dtype == torch.float16 else 1e-5
    with torch_export_patches():
        check(
            lambda x: [torch.cov(x), torch.cov(x, correction=0), torch.corrcoef(x)], (x,),
            target=aten.cov.default, tolerance=limit,
        )  # fmt: skip
