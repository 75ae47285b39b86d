import onnx_ir as ir
import pytest

from torchferry.seams import fusions

GELU = """<ir_version: 10, opset_import: ["" : 18]>
agraph (float[2, 3] x) => (float[2, 3] y) {
    half = Constant <value = float {0.5}> ()
    one = Constant <value = float {1.0}> ()
    root = Constant <value = float {1.4142135}> ()
    a = Div(x, root)
    b = Erf(a)
    c = Add(b, one)
    d = Mul(x, c)
    y = Mul(half, d)
}"""


@pytest.mark.parametrize("there", [True, False])
def test_fusions_of_onnxscript_or_none(there, monkeypatch):
    if not there:
        monkeypatch.setattr(fusions, "probe", lambda _: None)
    model = ir.from_onnx_text(GELU)
    counts = fusions.fuse_for_onnxruntime(model)
    fused = [node.op_type for node in model.graph if "Gelu" in node.op_type]
    assert (sum(counts.values()) > 0) == there == bool(fused)
