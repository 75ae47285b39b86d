"""What does each rewrite for onnxruntime gain on the CPU?

A small graph for each rule is run as it stands and rewritten, both with all of onnxruntime's own
optimizations, several sessions of each in turn, at a small and a large size; CPU time of one
thread, medians. Rules that are for CUDA only are measured too: this is why. Writes
runtime_rules.json and its section of RESULTS.md; exits 1 when a rule of the CPU set makes its
graph slower by more than noise.

    python benchmarks/runtime_rules.py [--only Gelu] [--rounds 15] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from record import machine, markdown, save

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.equal import merge_equal
from torchferry.optimizer.known_sizes import name_sizes
from torchferry.optimizer.plan import STAGES, plan_of
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.rules import transpose
from torchferry.optimizer.tally import Tally

QUESTION = "What does each rewrite for onnxruntime gain on the CPU?"
WINDOW = 0.02  # seconds that a session is called for in each round
NOISE = 0.9  # a rule of the CPU set is slow below this gain
SIZES: Mapping[str, Mapping[str, int]] = {
    "1 x 1": {"a": 1, "b": 1, "p": 64, "t": 65},
    "2 x 128": {"a": 2, "b": 128, "p": 128, "t": 256},
}
"""Batch and length; where there is a cache, its length and that of both."""

HEAD = '<ir_version: 11, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
NUMBERS = """
  half = Constant<value_float=0.5>() one = Constant<value_float=1.0>()
  root = Constant<value_float=1.4142135>() eps = Constant<value_float=1e-6>()
  two = Constant<value_float=2.0>() three = Constant<value_float=3.0>()
  k44 = Constant<value_float=0.044715>() k79 = Constant<value_float=0.7978845608>()
  zero = Constant<value_float=0.0>() inf = Constant<value_float=-inf>()
  scale = Constant<value_float=0.125>() last = Constant<value_ints=[-1]>()
  heads = Constant<value_ints=[0,0,16,64]>() join = Constant<value_ints=[0,0,1024]>()
"""
X = "float[a,b,1024] x"
ROW = "float[1024] w"
Y = "float[a,b,1024] y"
QKV = "float[a,16,b,64] q, float[a,16,b,64] k, float[a,16,b,64] v"
PAST = "float[a,16,p,64] pk, float[a,16,p,64] pv"
ATTENDED = "float[a,16,b,64] y"
ERF = "s = Div(x, root) e = Erf(s) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)"
TANH = """c = Pow(x, three) d = Mul(c, k44) e = Add(x, d) f = Mul(e, k79) g = Tanh(f)
  h = Add(g, one) i = Mul(x, h) y = Mul(i, half)"""
RMS = """s = Pow(x, two) m = ReduceMean(s, last) n = Add(m, eps) r = Sqrt(n) i = Reciprocal(r)
  h = Mul(x, i) y = Mul(h, w)"""
LAYER = """m0 = ReduceMean(x, last) c = Sub(x, m0) y0 = RMSNormalization<axis=-1>(c, w)
  y = Add(y0, z)"""
TURN = """l, r = Split<axis=-1, num_outputs=2>(q) n = Neg(r) c = Concat<axis=-1>(n, l)
  d = Concat<axis=-1>(angle, angle) axis = Constant<value_ints=[1]>()
  c3 = Cos(d) s3 = Sin(d) cos = Unsqueeze(c3, axis) sin = Unsqueeze(s3, axis)
  e = Mul(q, cos) f = Mul(c, sin) y = Add(e, f)"""
SOFTMAX = """kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(q, kt) x1 = Mul(x0, scale)
  x2 = Add(x1, m) u = Softmax(x2) bad = IsNaN(u) p = Where(bad, zero, u) y = MatMul(p, v)"""
BIASED = """low{0} = Constant<value_float=-3.4028235e38>() m{0} = Where(seen, zero, low{0})
  kt{0} = Transpose<perm=[0,1,3,2]>(k) x{0} = MatMul({1}, kt{0}) z{0} = Add(x{0}, bias)
  w{0} = Add(z{0}, m{0}) u{0} = Softmax(w{0}) bad{0} = IsNaN(u{0}) p{0} = Where(bad{0}, zero, u{0})
  {2} = MatMul(p{0}, v)"""
"""Of layers that share a bias and a mask."""
ANY_MASK = """kt{0} = Transpose<perm=[0,1,3,2]>(k) x{0} = MatMul({1}, kt{0}) w{0} = Add(x{0}, m)
  u{0} = Softmax(w{0}) {2} = MatMul(u{0}, v)"""
CHOSEN = """low{0} = Constant<value_float=-3.4028235e38>() m{0} = Where(seen, zero, low{0})
  kt{0} = Transpose<perm=[0,1,3,2]>(k) x{0} = MatMul({1}, kt{0}) z{0} = Where(c, x{0}, low{0})
  w{0} = Add(z{0}, m{0}) u{0} = Softmax(w{0}) {2} = MatMul(u{0}, v)"""
GROUPED = """rows = Constant<value_ints=[0,4,-1,0]>() parts = Constant<value_ints=[0,16,-1,0]>()
  few = Constant<value_ints=[0,0,4,64]>() k1 = Reshape(z, few) v = Transpose<perm=[0,2,1,3]>(k1)
  q1 = Reshape(x, heads) q = Transpose<perm=[0,2,1,3]>(q1) qs = Mul(q, scale)
  qr = Reshape(qs, rows) kt = Transpose<perm=[0,2,3,1]>(k1) x0 = MatMul(qr, kt)
  x1 = Reshape(x0, parts) u = Softmax(x1) ur = Reshape(u, rows) y0 = MatMul(ur, v)
  y4 = Reshape(y0, parts) y1 = Transpose<perm=[0,2,1,3]>(y4) y = Reshape(y1, join)"""
TURNED = """q1 = Reshape(x, heads) q = Transpose<perm=[0,2,1,3]>(q1)
  y4 = RotaryEmbedding(q, c, s) y1 = Transpose<perm=[0,2,1,3]>(y4) y = Reshape(y1, join)"""
CACHE = """k = Concat<axis=2>(pk, k0) v = Concat<axis=2>(pv, v0)
  y = Attention<scale=0.125>(q, k, v, m)"""
SPLIT = """q1 = Reshape(x, heads) q = Transpose<perm=[0,2,1,3]>(q1)
  k1 = Reshape(z, heads) k = Transpose<perm=[0,2,1,3]>(k1)"""
FLAT = (
    SPLIT
    + """ y4 = Attention(q, k, k) y1 = Transpose<perm=[0,2,1,3]>(y4)
  y = Reshape(y1, join)"""
)
SEEN = """c = Cast<to=1>(m) n = ReduceSum(c, last) some = Greater(n, zero)
  add = Where(m, zero, inf) u = Attention<scale=0.125>(q, k, v, add) y = Where(some, u, zero)"""
EVERYTHING = """n0 = Shape<start=0, end=1>(i) n1 = Shape<start=1, end=2>(i)
  z = Constant<value_int=0>() o = Constant<value_int=1>() ones = Constant<value_ints=[1,1,1]>()
  a0 = Constant<value_ints=[0]>() w0 = Constant<value_ints=[1,2,3]>()
  w1 = Constant<value_ints=[0,1,2]>() e0 = Squeeze(n0, a0) e1 = Squeeze(n1, a0)
  r0 = Range(z, e0, o) r1 = Range(z, e1, o) u0 = Unsqueeze(r0, w0) u1 = Unsqueeze(r1, w1)
  t0 = Concat<axis=0>(ones, n1) t1 = Concat<axis=0>(n0, ones) x0 = Expand(u0, t0)
  x1 = Expand(u1, t1) p0 = Unsqueeze(x0, last) p1 = Unsqueeze(x1, last)
  p = Concat<axis=-1>(p0, p1) y = GatherND(i, p)"""
PARTS = """z = Constant<value_ints=[512,512]>() s = SplitToSequence<axis=-1>(x, z)
  n0 = Constant<value_int=0>() n1 = Constant<value_int=1>() p = SequenceAt(s, n0)
  q = SequenceAt(s, n1) y = Concat<axis=-1>(q, p)"""


def _half(text: str) -> str:
    return text.replace("float[", "float16[")


GRAPHS: Mapping[str, tuple[str, str, str]] = {
    "GeluErf": (X, Y, ERF),
    "GeluTanh": (X, Y, TANH),
    "FastGelu": (X, Y, 'y = Gelu<approximate="tanh">(x)'),
    "BiasGelu": (f"{X}, {ROW}", Y, "s = Add(x, w) y = Gelu(s)"),
    "QuickGelu": (X, Y, "s = Sigmoid(x) y = Mul(x, s)"),
    "QuickGelu, float16": (_half(X), _half(Y), "s = Sigmoid(x) y = Mul(x, s)"),
    "BiasGelu, float16": (_half(f"{X}, {ROW}"), _half(Y), "s = Add(x, w) y = Gelu(s)"),
    "RmsNorm": (f"{X}, {ROW}", Y, RMS),
    "LayerNorm": (f"{X}, {ROW}, float[1024] z", Y, LAYER),
    "SumBeforeNorm": (
        f"{X}, float[a,b,1024] z, {ROW}, float[1024] c", Y,
        "s = Add(x, z) y = LayerNormalization(s, w, c)",
    ),
    "Rotary": ("float[a,16,b,64] q, float[1,b,32] angle", ATTENDED, TURN),
    "Attention": (f"{QKV}, float[a,1,b,b] m", ATTENDED, SOFTMAX),
    "Attention, of any mask": (
        f"{QKV}, float[a,1,b,b] m", ATTENDED,
        f"{ANY_MASK.format(0, 'q', 'h')} {ANY_MASK.format(1, 'h', 'y')}",
    ),
    "MaskedScores + Attention": (
        f"{QKV}, bool[1,1,b,b] c, bool[a,1,b,b] seen", ATTENDED,
        f"{CHOSEN.format(0, 'q', 'h')} {CHOSEN.format(1, 'h', 'y')}",
    ),
    "MaskTerms + Attention": (
        f"{QKV}, float[1,16,b,b] bias, bool[a,1,b,b] seen", ATTENDED,
        f"{BIASED.format(0, 'q', 'h')} {BIASED.format(1, 'h', 'y')}",
    ),
    "RotaryFlat": (f"{X}, float[a,b,32] c, float[a,b,32] s", Y, TURNED),
    "AttentionGrouped + AttentionFlat": (f"{X}, float[a,b,256] z", Y, GROUPED),
    "AttentionCache": (
        f"{QKV.replace('k,', 'k0,').replace(' v', ' v0')}, {PAST}, float[a,1,b,t] m",
        f"{ATTENDED}, float[a,16,t,64] k, float[a,16,t,64] v", CACHE,
    ),
    "SeenRows": (f"{QKV}, bool[a,1,b,b] m", ATTENDED, SEEN),
    "AttentionFlat": (f"{X}, float[a,b,1024] z", Y, FLAT),
    "GatherEverything": ("bool[a,b] i", "bool[a,1,1,b] y", EVERYTHING),
    "SplitSequence": (X, Y, PARTS),
    "SkipRmsNorm": (
        f"{X}, float[a,b,1024] z, {ROW}", f"{Y}, float[a,b,1024] s",
        "s = Add(x, z) y = RMSNormalization<axis=-1>(s, w)",
    ),
    "SkipLayerNorm": (
        f"{X}, float[a,b,1024] z, {ROW}, float[1024] c", f"{Y}, float[a,b,1024] s",
        "s = Add(x, z) y = LayerNormalization(s, w, c)",
    ),
}  # fmt: skip
"""For each rule the inputs, the outputs and the body of a graph that it applies to."""


_QKV = "float[1024,1024] wq, float[1024,256] wk, float[1024,256] wv"
_PACKED = "float[1024,1536] wp"
_SPLIT = """parts = Constant<value_ints=[1024,256,256]>() p = MatMul(x, wp)
  y, k, v = Split<axis=-1>(p, parts)"""
_THREE = f"{Y}, float[a,b,256] k, float[a,b,256] v"
NOT_WRITTEN: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "FusedMatMul": (
        QKV, "float[a,16,b,b] y",
        "kt = Transpose<perm=[0,1,3,2]>(k) z = MatMul(q, kt) y = Mul(z, scale)",
        QKV, "y = com.microsoft.FusedMatMul<alpha=0.125, transB=1>(q, k)",
        "onnxruntime makes it itself when the session is made",
    ),
    "packed queries, keys, values": (
        f"{X}, {_QKV}", _THREE, "y = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)",
        f"{X}, {_PACKED}", _SPLIT,
        "the parts are copied out of the one product, and the weights are copied to be joined",
    ),
}  # fmt: skip
"""What others rewrite: inputs, outputs, what is found, inputs and what could be made, why not."""


def experts() -> ir.Model:
    """A router and its experts as they are exported, 2 of 8, with all rewrites but the one."""
    import torch
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    from torchferry import optimize, to_onnx

    config = MixtralConfig(hidden_size=1024, intermediate_size=1024, num_local_experts=8)
    config._experts_implementation = "grouped_mm"
    block = MixtralSparseMoeBlock(config).eval()
    torch.manual_seed(0)
    for weight in block.parameters():
        torch.nn.init.normal_(weight, std=1 / 32)
    made = to_onnx(block, (torch.randn(2, 3, 1024),), dynamic_shapes=({0: "a", 1: "b"},)).model
    return optimize(made, "default+onnxruntime-MixtureOfExperts")


EXPORTED: Mapping[str, Callable[[], ir.Model]] = {"MixtureOfExperts": experts}
"""For further rules what makes a graph that is too long to be written here."""

NO_KERNEL = {
    "BiasSplitGelu": "the CPU provider has no kernel, and CUDA's takes three sizes of diffusion "
    "models only",
}
"""Rewrites that others make, for which the processor has nothing."""


@dataclass
class Line:
    """What one rule gains."""

    rule: str
    where: str  # the processors it is for
    before: int
    after: int
    gains: dict[str, float]

    @property
    def passed(self) -> bool:
        """Whether a rule of the CPU set is not slower at any size."""
        return "CPU" not in self.where or min(self.gains.values()) >= NOISE


def parsed(name: str, opset: int = 23) -> ir.Model:
    if name in EXPORTED:
        return EXPORTED[name]()
    inputs, outputs, body = GRAPHS[name]
    text = f"{HEAD.format(opset=opset)} g ({inputs}) => ({outputs}) {{ {NUMBERS} {body} }}"
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def weighted(inputs: str, outputs: str, body: str) -> ir.Model:
    """A graph whose inputs w… are weights, so that onnxruntime lays them out beforehand."""
    text = f"{HEAD.format(opset=23)} g ({inputs}) => ({outputs}) {{ {NUMBERS} {body} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    for value in [v for v in model.graph.inputs if str(v.name).startswith("w")]:
        drawn = np.random.default_rng(1).normal(size=value.shape.numpy()) / 32
        value.const_value = ir.tensor(drawn.astype(np.float32))
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def other(name: str, given: Any) -> tuple[str, ...]:
    """A row of a rewrite that is not made: what it would gain, and why it is not."""
    inputs, outputs, before, others, after, why = NOT_WRITTEN[name]
    models = weighted(inputs, outputs, before), weighted(others, outputs, after)
    gains = [gain(models, dims, given, same=inputs == others) for dims in SIZES.values()]
    return (name, *(f"{one:.2f}" for one in gains), why)


def session(model: ir.Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def feeds_for(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, Any]:
    random_numbers = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        dims = [d if isinstance(d, int) else sizes[str(d.value)] for d in value.shape]
        drawn = random_numbers.normal(size=dims)
        feeds[str(value.name)] = (
            drawn > -1 if value.dtype == ir.DataType.BOOL else drawn.astype(value.dtype.numpy())
        )
    return feeds


def gain(
    models: tuple[ir.Model, ir.Model], sizes: Mapping[str, int], given: Any, *, same: bool = True
) -> float:
    """How many times as long the first takes as the second; with other weights not the same."""
    sessions = [(which, session(models[which])) for _ in range(given.replicas) for which in (0, 1)]
    random.shuffle(sessions)
    feeds = feeds_for(models[0], sizes)
    wanted = sessions[0][1].run(None, feeds)
    start = time.perf_counter()
    for _, one in sessions:
        for want, got in zip(wanted, one.run(None, feeds), strict=True):
            limit = 4e-3 if want.dtype == np.float16 else 1e-4
            if same:
                np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    repeat = max(1, round(WINDOW * len(sessions) / (time.perf_counter() - start)))
    spent: list[list[float]] = [[] for _ in sessions]
    for _ in range(given.rounds):
        order = list(range(len(sessions)))
        random.shuffle(order)
        for index in order:
            one = sessions[index][1]
            one.run(None, feeds)
            start = time.process_time()
            for _ in range(repeat):
                one.run(None, feeds)
            spent[index].append(time.process_time() - start)
    each: dict[int, list[float]] = {0: [], 1: []}
    for (which, _), values in zip(sessions, spent, strict=True):
        each[which].append(statistics.median(values))
    return statistics.median(each[0]) / statistics.median(each[1])


def measure(name: str, rules: Mapping[str, Rule], given: Any) -> Line:
    before, after = parsed(name), parsed(name)
    name_sizes(after)
    used = [rules[part.split(",")[0]] for part in name.split(" + ")]
    tally = Tally()
    apply_rules(after, [*used, *transpose.RULES], tally)
    assert all(rule.name in tally.applied for rule in used), f"{name} finds nothing in its graph"
    for model in (before, after):  # what is left of a Reshape and its inverse is not the rule's
        cleaning = [
            rule for stage in plan_of("default") for rule in stage.rules if rule not in used
        ]
        apply_rules(model, cleaning, Tally())
        merge_equal(model)
    counts = [sum(1 for _ in model.graph) for model in (before, after)]
    gains = {size: gain((before, after), dims, given) for size, dims in SIZES.items()}
    return Line(name, " ".join(sorted(used[0].processors)), *counts, gains)


def table(lines: list[Line]) -> str:
    head = ("rule", "for", "nodes", *(f"gain, {size}" for size in SIZES), "bar")
    rows = [
        (
            line.rule, line.where, f"{line.before} → {line.after}",
            *(f"{line.gains[size]:.2f}" for size in SIZES),
            "" if "CPU" not in line.where else "pass" if line.passed else f"FAIL: ≥ {NOISE}",
        )
        for line in lines
    ]  # fmt: skip
    return markdown(head, rows, right=range(3, 3 + len(SIZES)))


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--only", default="", help="rules whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--replicas", type=int, default=2, help="sessions of each graph")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    rules = {rule.name: rule for stage in STAGES for rule in stage.rules}
    lines = [measure(name, rules, given) for name in (*GRAPHS, *EXPORTED) if given.only in name]
    head = ("rewrite", *(f"gain, {size}" for size in SIZES), "why there is no rule")
    rows = [other(name, given) for name in NOT_WRITTEN if given.only in name]
    rows += [(name, *[""] * len(SIZES), why) for name, why in NO_KERNEL.items()]
    rest = markdown(head, rows, right=range(1, 1 + len(SIZES)))
    print(f"{table(lines)}\n\n{rest}")
    if not given.no_write and not given.only:
        told = f"{QUESTION} `python benchmarks/runtime_rules.py`, times as fast as without the "
        told += f"rule, hidden size 1024, batch x length, one thread, CPU time; {machine()}, "
        told += f"onnxruntime {onnxruntime.__version__}."
        data = [asdict(line) | {"passed": line.passed} for line in lines]
        told += f"\n\n{table(lines)}\n\nWhat others rewrite too:\n\n{rest}"
        save("runtime_rules", data, told)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
