"""An Add before a norm becomes a Sum, which onnxruntime does not fuse into a slower kernel."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from rewriting import changes, keeps, parse

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.plan import plan_of
from torchferry.optimizer.rules.onnxruntime.residual import RULES
from torchferry.optimizer.tally import Tally

HEAD = "g (float[a,b,8] x, float[a,b,8] r, float[8] w, float[8] c) => (float[a,b,8] y"
NORM = "y = LayerNormalization<axis=-1>(s, w, c)"


def test_an_add_before_a_norm():
    changes(RULES, f"{HEAD}) {{ s = Add(x, r) {NORM} }}", f"{HEAD}) {{ s = Sum(x, r) {NORM} }}")


def test_a_bias_and_a_sum_that_is_read_elsewhere():
    changes(
        RULES,
        f"{HEAD}, float[a,b,8] z) {{ s = Add(x, c) z = Neg(s) {NORM} }}",
        f"{HEAD}, float[a,b,8] z) {{ s = Sum(x, c) z = Neg(s) {NORM} }}",
    )


@pytest.mark.parametrize(
    "body",
    [
        "s = Add(x, r) y = Neg(s)",
        "s = Add(w, c) y = LayerNormalization<axis=-1>(x, s, c)",
        "s = Mul(x, r) " + NORM,
    ],
)
def test_what_no_norm_reads_stays(body):
    keeps(RULES, f"{HEAD}) {{ {body} }}")


def test_half_precision_has_no_kernel():
    text = f"{HEAD}) {{ s = Add(x, r) {NORM} }}".replace("float[", "float16[")
    keeps(RULES, text, "no kernel")


def test_only_where_the_kernel_is_slow():
    named = {p: {r.name for s in plan_of("default+onnxruntime", processor=p) for r in s.rules}
             for p in ("CPU", "CUDA")}  # fmt: skip
    assert "SumBeforeNorm" in named["CPU"] - named["CUDA"]


def test_onnxruntime_leaves_a_sum_alone(tmp_path):
    """If this fails, look whether onnxruntime's kernel is still slower than the two nodes."""
    found = []
    for rewritten in (False, True):
        model = parse(f"{HEAD}) {{ s = Add(x, r) {NORM} }}")
        if rewritten:
            assert apply_rules(model, RULES, Tally()) == 1
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / f"{rewritten}.onnx")
        options.log_severity_level = 4
        onnxruntime.InferenceSession(
            ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        kept = onnx.load(options.optimized_model_filepath)
        found.append([node.op_type for node in kept.graph.node])
    assert found == [["SkipLayerNormalization"], ["Sum", "LayerNormalization"]]
