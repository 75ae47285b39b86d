import torch
from torch.nn.functional import scaled_dot_product_attention

from torchferry.capturer import torch_export_patches
from torchferry.capturer.patches.attention import PATCHES


class Attention(torch.nn.Module):
    def __init__(self, by_name: bool) -> None:
        super().__init__()
        self.by_name = by_name

    def forward(self, x):
        longer = torch.ops.aten.sym_size.int(x, 1) > 1
        if self.by_name:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=longer)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, None, 0.0, longer)


def test_a_comparison_of_sizes_as_is_causal(captured):
    for by_name in (True, False):
        found = captured(Attention(by_name), [(torch.randn(2, 3, 4),), (torch.randn(3, 5, 4),)])
        assert found.patches == (PATCHES[0].subject,)
        assert "is_causal" in (found.attempts[0].error or "")


def test_upstream_still_refuses_it_and_bools_are_no_hit():
    (patch,) = PATCHES
    assert patch.needed()
    x = torch.randn(1, 3, 4)
    want = scaled_dot_product_attention(x, x, x, is_causal=True)
    with torch_export_patches(patch_transformers=False) as patching:
        got = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(got, want)
    assert patching.hit == ()
