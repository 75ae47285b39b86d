"""Attention against eager: every mask, grouped heads, rows that see nothing."""

import pytest
import torch
from op_case import check, export
from torch import nn

from families import in_turn
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
r = torch.randn
attention = nn.functional.scaled_dot_product_attention
TARGET = aten.scaled_dot_product_attention.default
OPSETS = pytest.mark.parametrize("opset", [18, 20, 23])


def heads(batch, queries, keys, query_heads=4, key_heads=4):
    return (r(batch, query_heads, queries, 8), r(batch, key_heads, keys, 8),
            r(batch, key_heads, keys, 6))  # fmt: skip


def seen(*sizes):
    """A mask, one row of which sees nothing."""
    mask = torch.rand(sizes) > 0.5
    mask[..., 1, :] = False
    return mask


def added(*sizes):
    return torch.where(seen(*sizes), r(sizes), -torch.inf)


def least(*sizes):
    """A row that is hidden by the least number has equal weights."""
    return torch.where(seen(*sizes), r(sizes), torch.finfo(torch.float32).min)


def lines(dtype):
    return [tuple(t.to(dtype) for t in heads(*sizes)) for sizes in ((2, 5, 7), (1, 3, 9))]


PLAIN = heads(2, 5, 7), heads(1, 3, 9), heads(3, 9, 2)
GROUPED = heads(2, 5, 7, 6, 2), heads(1, 3, 9, 6, 2)
CASES = [
    (attention, PLAIN),
    (lambda *t: attention(*t, scale=0.3), PLAIN),
    (lambda *t: attention(*t, scale=-0.5), PLAIN),
    (lambda *t: attention(*t, scale=0.0), PLAIN),
    (lambda *t: attention(*t, is_causal=True), PLAIN),
    (lambda *t: attention(*t, is_causal=True), PLAIN[:1]),
    (attention, [(*PLAIN[0], seen(2, 1, 5, 7)), (*PLAIN[1], seen(1, 1, 3, 9))]),
    (attention, [(*PLAIN[0], seen(2, 4, 5, 7)), (*PLAIN[1], seen(1, 4, 3, 9))]),
    (attention, [(*PLAIN[0], seen(5, 7)), (*PLAIN[1], seen(3, 9))]),
    (
        attention,
        [(*PLAIN[0], torch.rand(2, 1, 1, 7) > 0.3), (*PLAIN[1], torch.rand(1, 1, 1, 9) > 0)],
    ),
    (attention, [(*PLAIN[0], added(2, 4, 5, 7)), (*PLAIN[1], added(1, 4, 3, 9))]),
    (attention, [(*PLAIN[0], added(2, 1, 5, 7)), (*PLAIN[1], added(1, 1, 3, 9))]),
    (attention, [(*PLAIN[0], least(2, 4, 5, 7)), (*PLAIN[1], least(1, 4, 3, 9))]),
    (attention, [(*PLAIN[0], least(5, 7)), (*PLAIN[1], least(3, 9))]),
    (lambda *t: attention(*t, enable_gqa=True), GROUPED),
    (
        lambda *t: attention(*t[:3], t[3], enable_gqa=True),
        [(*GROUPED[0], seen(2, 1, 5, 7)), (*GROUPED[1], seen(1, 1, 3, 9))],
    ),
    (lambda *t: attention(*t, enable_gqa=True, is_causal=True), GROUPED),
    (attention, [(r(2, 5, 8), r(2, 7, 8), r(2, 7, 6)), (r(1, 3, 8), r(1, 9, 8), r(1, 9, 6))]),
    (attention, [(r(5, 8), r(7, 8), r(7, 6)), (r(3, 8), r(9, 8), r(9, 6))]),
    (
        attention,
        [
            (r(2, 2, 3, 5, 8), r(2, 2, 3, 7, 8), r(2, 2, 3, 7, 6)),
            (r(1, 2, 3, 4, 8), r(1, 2, 3, 2, 8), r(1, 2, 3, 2, 6)),
        ],
    ),
    (attention, lines(torch.float16)),
    (attention, lines(torch.float64)),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("function", "sets", "opset"), in_turn(CASES, [23, 18, 20]))
def test_matches_eager(function, sets, opset):
    check(function, *sets, target=TARGET, opset=opset)


def test_few_nodes():
    model = check(attention, *PLAIN, target=TARGET)
    assert [n.op_type for n in model.graph] == ["Mul", "Transpose", "MatMul", "Softmax", "MatMul"]
    sets = [(*PLAIN[0], seen(2, 1, 5, 7)), (*PLAIN[1], seen(1, 1, 3, 9))]
    kinds = [n.op_type for n in check(attention, *sets, opset=23).graph]
    assert kinds.count("Attention") == kinds.count("Where") == 1
    assert not {"Softmax", "MatMul"} & {*kinds}
    assert [n.op_type for n in check(attention, *PLAIN, opset=23).graph] == ["Attention"]
    both = check(lambda q, k, v, m: attention(q, k, v, m) + attention(q + 1, k, v, m), *sets)
    assert [n.op_type for n in both.graph].count("ReduceSum") == 1


def test_dropout_is_refused():
    program = export(lambda *t: attention(*t, dropout_p=0.5), PLAIN[0])
    with pytest.raises(LoweringFailed, match="its dropout is random"):
        translate(program, 20)


def test_the_kernel_of_the_cpu():
    def kernel(q, k, v, mask):
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, attn_mask=mask, scale=0.5
        )[0]

    query, key = r(2, 4, 5, 8), r(2, 4, 7, 8)
    check(kernel, (query, key, key + 1, added(2, 1, 5, 7)),
          target=aten._scaled_dot_product_flash_attention_for_cpu.default)  # fmt: skip


def test_safe_softmax():
    check(lambda x: aten._safe_softmax(x, -1), (added(2, 3, 4),), (added(1, 3, 6),),
          target=aten._safe_softmax.default)  # fmt: skip


@OPSETS
def test_multi_head_attention_with_a_padding_mask(opset):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, padding):
            return self.attention(x, x, x, key_padding_mask=padding)

    padded = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 0, 0, 1]]).bool()
    check(Model().eval(), (r(2, 5, 8), padded), (r(1, 3, 8), padded[:1, :3]), opset=opset)


def test_encoder_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    check(layer.eval(), (r(2, 5, 8),), (r(1, 3, 8),))


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_no_key_at_all(kind):
    def attend(q, k, v, mask):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def inputs(batch, keys):
        mask = torch.rand(batch, 1, 3, keys) > 0.4
        bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        shape = (batch, 2, keys, 8)
        query = torch.randn(batch, 2, 3, 8)
        return query, torch.randn(shape), torch.randn(shape), mask if kind is torch.bool else bias

    check(attend, inputs(2, 5), inputs(1, 7), inputs(3, 0))
