import onnx_ir as ir

from torchferry.optimizer.matcher import Miss
from torchferry.optimizer.tally import Tally


def test_counts_and_nearest_misses():
    tally, node = Tally(explain="A"), ir.node("Relu", [])
    for rule in ("A", "A", "B"):
        tally.decline(rule, "too large", node, 2)
    tally.misses += [Miss(1, "Exp is not Log", node), Miss(3, "deep", node)]
    assert tally.declined == {"A": {"too large": 2}, "B": {"too large": 1}}
    assert [(m.matched, m.reason) for m in tally.nearest()] == [
        (3, "deep"), (2, "declined: too large"), (1, "Exp is not Log"),
    ]  # fmt: skip
    assert len(tally.nearest(1)) == 1
