"""flex_attention against eager, whose own dense form it takes on the CPU."""

import pytest
import torch
from op_case import check, export
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from families import slow_among
from torchferry.converter.translate import translate
from torchferry.errors import MissingLowering

TARGET = torch.ops.higher_order.flex_attention
BIAS, TABLE = torch.randn(4), torch.randn(4, 60)
# torch 2.13's eager form computes scores that no kernel would
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def qkv(batch=2, queries=8, keys=12, heads=4, dtype=torch.float32):
    shapes = (batch, 4, queries, 16), (batch, heads, keys, 16), (batch, heads, keys, 16)
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


SETS = qkv(), qkv(3, 5, 9), qkv(1, 1, 1)
BATCHES = qkv(), qkv(5), qkv(1)  # torch 2.13 exports block masks of static sizes only
SCORES = {
    "alibi": lambda s, b, h, q, k: s + BIAS[h] * (q - k),
    "relative": lambda s, b, h, q, k: s + TABLE[h, q - k + 20],
    "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "causal": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "batch": lambda s, b, h, q, k: s * (b + 1) + h,
}


@pytest.mark.parametrize("name", slow_among(SCORES, ["alibi", "softcap"]))
def test_scores(name):
    check(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES[name]), *SETS, target=TARGET)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_scores_of_other_dtypes(dtype):
    sets = [tuple(t.to(dtype) for t in one) for one in SETS]
    check(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"]), *sets)


def test_without_a_function_it_is_attention_as_any_other():
    model = check(flex_attention, *SETS, target=TARGET, opset=23)
    assert [node.op_type for node in model.graph] == ["Attention"]


def test_scale():
    check(lambda q, k, v: flex_attention(q, k, v, scale=0.3), *SETS)
    check(lambda q, k, v: flex_attention(q, k, v, SCORES["softcap"], scale=3.0), *SETS)


@pytest.mark.parametrize(("heads", "score"), [(1, None), (2, None), (2, SCORES["batch"])])
def test_fewer_heads_of_keys(heads, score):
    sets = qkv(heads=heads), qkv(3, 5, 9, heads), qkv(1, 1, 1, heads)
    check(lambda q, k, v: flex_attention(q, k, v, score, enable_gqa=True), *sets)


MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "rows without keys": lambda b, h, q, k: q >= k + 3,
    "window": lambda b, h, q, k: (q - k).abs() <= 2,
    "heads": lambda b, h, q, k: (q + h) % 2 == k % 2,
}


@pytest.mark.parametrize(
    ("mask", "score"),
    slow_among(
        [
            *((mask, None) for mask in MASKS.values()),
            (MASKS["rows without keys"], SCORES["alibi"]),
        ],
        [(MASKS["window"], None), (MASKS["causal"], None)],
    ),
    ids=[*MASKS, "with scores"],
)
def test_masks(mask, score):
    blocks = create_block_mask(mask, None, None, 8, 12, device="cpu")
    check(
        lambda q, k, v: flex_attention(q, k, v, score, block_mask=blocks), *BATCHES, target=TARGET
    )


def test_a_mask_that_does_not_look_at_heads_is_not_as_large_as_the_scores():
    blocks = create_block_mask(MASKS["causal"], None, None, 8, 12, device="cpu")
    program = export(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), *BATCHES)
    model = translate(program, 20)
    (where,) = [n for n in model.graph if n.op_type == "Where" and len(n.inputs[0].shape) == 4][:1]
    assert list(where.inputs[0].shape) == [1, 1, 8, 12]


def test_a_mask_made_in_forward_from_what_is_given():
    def function(q, k, v, documents):
        def same(b, h, i, j):
            return (documents[b, i] == documents[b, j]) & (i >= j)

        blocks = create_block_mask(same, q.shape[0], None, 8, 8, device="cpu")
        return flex_attention(q, k, v, block_mask=blocks)

    sets = [(*qkv(2, 8, 8), torch.randint(0, 3, (2, 8)).sort(1)[0]) for _ in range(2)]
    check(function, *sets, target=TARGET)


def test_logarithm_of_the_sum():
    def masked(s, b, h, q, k):
        return torch.where(q > k, 2 * s, -float("inf"))

    check(lambda q, k, v: flex_attention(q, k, v, masked, return_lse=True), *BATCHES)
    check(lambda q, k, v: flex_attention(q, k, v, return_lse=True), *BATCHES)


def test_an_unknown_operator_of_the_function_is_named():
    def function(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.special.airy_ai(s))

    with pytest.raises(MissingLowering, match="special_airy_ai"):
        translate(export(function, *BATCHES), 20)
