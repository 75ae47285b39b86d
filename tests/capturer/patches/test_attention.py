import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from families import in_turn
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
        assert found.patches == (PATCHES[-1].subject,)
        assert "is_causal" in (found.attempts[0].error or "")


def test_upstream_still_refuses_it_and_bools_are_no_hit():
    assert all(patch.needed() for patch in PATCHES)
    x = torch.randn(1, 3, 4)
    want = scaled_dot_product_attention(x, x, x, is_causal=True)
    with torch_export_patches(patch_transformers=False) as patching:
        got = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(got, want)
    assert patching.hit == ()


class Masked(torch.nn.Module):
    def __init__(self, encodes: bool, made: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.made = made
        if encodes:
            layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
            self.stack = torch.nn.TransformerEncoder(layer, 1)
        else:
            layer = torch.nn.TransformerDecoderLayer(8, 2, 8, batch_first=True)
            self.stack = torch.nn.TransformerDecoder(layer, 1)

    def forward(self, x, mask):
        if self.made:
            mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        if isinstance(self.stack, torch.nn.TransformerEncoder):
            return self.stack(x, mask=mask)
        return self.stack(x, x, tgt_mask=mask)


@pytest.mark.parametrize(("encodes", "made"), in_turn([True, False], [True, False]))
def test_the_values_of_a_mask_do_not_decide(captured, encodes, made):
    causal = [torch.nn.Transformer.generate_square_subsequent_mask(t) for t in (5, 7, 1)]
    other = torch.zeros(4, 4)
    other[:, 2] = float("-inf")
    masks = [*causal, other]
    sets = [(torch.randn(b, len(m), 8), m) for b, m in zip((2, 3, 1, 2), masks, strict=True)]
    captured(Masked(encodes, made), sets)
    assert torch.backends.mha.get_fastpath_enabled()
