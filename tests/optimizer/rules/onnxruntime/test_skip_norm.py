from __future__ import annotations

import numpy as np
import pytest
from rewriting import SIZES, changes, feeds_for, keeps, parse, run

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules.onnxruntime.skip_norm import RULES
from torchferry.optimizer.tally import Tally

IN = "float[a,b,6] x, float[a,b,6] s, float[6] w, float[6] c"
HEAD = f"g ({IN}) => (float[a,b,6] y, float[a,b,6] z) "
RMS = "RMSNormalization<axis=-1, epsilon=0.01, stash_type=1>"
LAYER = "LayerNormalization<axis=-1, epsilon=0.01>"


def test_rms_norm_of_a_residual():
    changes(
        RULES, HEAD + f"{{ t = Add(x, s) y = {RMS}(t, w) z = Relu(t) }}",
        HEAD + """{
            y, m, v, t = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>(x, s, w)
            z = Relu(t) }""",
        opset=23,
    )  # fmt: skip


def test_the_sum_may_be_an_output():
    changes(
        RULES, HEAD + f"{{ z = Add(x, s) y = {RMS}(z, w) }}",
        HEAD + "{ y, m, v, z = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>"
        "(x, s, w) }",
        opset=23,
    )  # fmt: skip


def test_onnxruntimes_own_name_of_the_norm():
    text = HEAD + f"{{ z = Add(x, s) y = {RMS}(z, w) }}"
    before = text.replace("RMSNormalization", "SimplifiedLayerNormalization")
    before, after = parse(before), parse(before)
    assert apply_rules(after, RULES, Tally()) == 1
    for seed, dims in enumerate(SIZES):
        feeds = feeds_for(before, dims, seed)
        for want, got in zip(run(before, feeds), run(after, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 20, 23])
def test_layer_norm_of_a_residual(opset):
    changes(
        RULES, HEAD + f"{{ z = Add(x, s) y = {LAYER}(z, w, c) }}",
        HEAD + "{ y, m, v, z = com.microsoft.SkipLayerNormalization<epsilon=0.01>(x, s, w, c) }",
        opset=opset,
    )  # fmt: skip


@pytest.mark.parametrize("order", ["t, s", "s, t"])
def test_a_bias_is_added_too(order):
    head = HEAD.replace("float[6] c", "float[6] c, float[6] b")
    changes(
        RULES, head + f"{{ t = Add(x, b) z = Add({order}) y = {LAYER}(z, w, c) }}",
        head + "{ y, m, v, z = com.microsoft.SkipLayerNormalization<epsilon=0.01>"
        "(x, s, w, c, b) }",
    )  # fmt: skip


def test_a_bias_of_rms_norm():
    changes(
        RULES, HEAD + f"{{ t = Add(x, c) z = Add(t, s) y = {RMS}(z, w) }}",
        HEAD + "{ y, m, v, z = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>"
        "(x, s, w, c) }",
        opset=23,
    )  # fmt: skip


@pytest.mark.parametrize("norm", [f"{RMS}(z, w)", f"{LAYER}(z, w, c)"])
@pytest.mark.parametrize("skip", ["float[1,b,6]", "float[6]", "float[a,1,6]", "float[k,b,6]"])
def test_a_broadcast_skip_stays(norm, skip):
    head = HEAD.replace("float[a,b,6] s", f"{skip} s")
    keeps(RULES, head + f"{{ z = Add(x, s) y = {norm} }}", "broadcast", opset=23)


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        ("RMSNormalization<axis=1>(z, w2)", "last axis"),
        ("RMSNormalization<axis=-1, stash_type=11>(z, w)", "float32"),
        ("LayerNormalization<axis=-2>(z, w2, w2)", "last axis"),
    ],
)
def test_norms_of_another_kind_stay(norm, reason):
    head = "g (float[a,4,6] x, float[a,4,6] s, float[6] w, float[4,6] w2) => (float[a,4,6] y) "
    keeps(RULES, head + f"{{ z = Add(x, s) y = {norm} }}", reason, opset=23)


def test_four_axes_stay():
    head = HEAD.replace("[a,b,6]", "[a,b,2,6]")
    keeps(RULES, head + f"{{ z = Add(x, s) y = {RMS}(z, w) }}", "axes", opset=23)
