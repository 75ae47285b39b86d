import pytest
import torch

from torchferry.capturer import torch_export_patches
from torchferry.capturer.patches.pooling import PATCHES

MAX_POOL = torch.ops.aten.max_pool1d.default


@pytest.mark.parametrize(
    "pool",
    [
        torch.nn.MaxPool1d(3, 2, 1),
        torch.nn.MaxPool1d(2, ceil_mode=True),
        torch.nn.MaxPool1d(2, dilation=2, stride=1),
    ],
    ids=str,
)
def test_a_line_of_any_length(pool, captured):
    found = captured(pool, [(torch.randn(b, 3, n),) for b, n in ((2, 9), (3, 12), (1, 5))])
    assert found.patches == (PATCHES[0].subject,)
    assert [node.target for node in found.program.graph.nodes if node.op == "call_function"] == [
        MAX_POOL
    ]


def test_numbers_within_the_block_and_the_operator_is_as_before():
    x = torch.tensor([[[1.0, float("nan"), 3.0, -1.0, -2.0]]])
    want = torch.nn.functional.max_pool1d(x, 2)
    before = dict(MAX_POOL.py_kernels)
    with torch_export_patches() as patching:
        got = torch.nn.functional.max_pool1d(x, 2)
        integers = torch.max_pool1d(torch.arange(8.0)[None], 3, 1, 1)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert torch.equal(integers, torch.max_pool1d(torch.arange(8.0)[None], 3, 1, 1))
    assert patching.hit == ()  # only a trace comes to it
    assert MAX_POOL.py_kernels == before == {}


def test_the_probe_asks_upstream():
    assert PATCHES[0].needed()
    assert PATCHES[0].diff().startswith("--- torch.ops.aten.max_pool1d.default")
