"""Whole files: the kernel computes what the grid says, in every layout, for batch 1 too."""

import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_language_model, save_model, value, weight
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file, round_to_grid
from torchferry.quantizer.linears import find_linears

IDS = [np.array([[5]]), np.array([[1, 2, 3], [98, 0, 7]])]


def reference(source, bits):
    """What the graph computes with the values of the grids, in float64."""
    linears = list(find_linears(io.load(source).graph))
    up, down, head = (
        round_to_grid(one.rows(0, one.shape[0]), bits[one.name], 32).values().astype(np.float64)
        for one in linears
    )
    if linears[-1].name == "embed.weight":
        table = head
    else:
        rows = io.load(source).graph.initializers["embed.weight"].const_value.numpy()
        table = round_to_grid(rows, 8, 32).values().astype(np.float64)
    return lambda ids: table[ids] @ up.T @ down.T @ head.T


@pytest.mark.parametrize("columns", [64, 72])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_the_kernel_computes_with_the_grid(tmp_path, rng, name, tied, columns):
    source = save_language_model(tmp_path / "m.onnx", rng, tied=tied, columns=columns)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES[name])
    inner = 8 if name == "int8" else 4
    expected = {"layers.0.up.weight": inner, "layers.0.down.weight": inner, "embed.weight": 8}
    assert done.bits == expected | ({} if tied else {"head.weight": 8})
    exact = reference(source, done.bits)
    for ids in IDS:
        wanted = exact(ids)
        ours = run(done.path, ids=ids)
        assert ours.shape == wanted.shape
        # accuracy level 4 rounds the activations to eight bits: under 1 % of the largest value
        assert np.abs(ours - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_tied_embedding_is_stored_once_and_nothing_of_the_floats_is_left(tmp_path, rng):
    source = save_language_model(tmp_path / "m.onnx", rng)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int4"])
    model = io.load(done.path)
    codes = [n for n in model.graph.initializers if n.endswith(".codes")]
    assert len(codes) == 3
    assert not [n for n in model.graph.initializers if n.endswith((".weight", ".T"))]
    readers = {n.op_type for n in model.graph.initializers["embed.weight.codes"].consumers()}
    assert readers == {"Gather", "MatMulNBits"}
    files = {p.name for p in tmp_path.iterdir()}
    assert files == {"m.onnx", "m.onnx_data", "q.onnx", "q.onnx_data"}
    assert done.nbytes == sum((tmp_path / n).stat().st_size for n in ("q.onnx", "q.onnx_data"))


def test_float16_stays_float16(tmp_path, rng):
    source = save_language_model(tmp_path / "m.onnx", rng, dtype=np.float16)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int4"])
    scales = io.load(done.path).graph.initializers["embed.weight.scales"]
    assert scales.dtype == ir.DataType.FLOAT16
    exact = reference(source, done.bits)
    for ids in IDS:
        wanted = exact(ids)
        assert np.abs(run(done.path, ids=ids) - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_weight_that_is_named_keeps_eight_bits_and_grids_are_used(tmp_path, rng):
    source = save_language_model(tmp_path / "m.onnx", rng)
    down = list(find_linears(io.load(source).graph))[1]
    grid = round_to_grid(down.rows(0, 64) * 0 + 1, 4)
    done = quantize_file(
        source, tmp_path / "q.onnx", RECIPES["int4"],
        wide={"layers.0.up.weight"}, grids={"layers.0.down.weight": grid},
    )  # fmt: skip
    assert done.bits["layers.0.up.weight"] == 8
    stored = io.load(done.path).graph.initializers["layers.0.down.weight.codes"]
    assert (stored.const_value.numpy() == grid.packed()[0]).all()


def save_attention(path, rng, *, sizes, opset):
    """Products of one operand, as those of queries, keys and values; the last has a bias."""
    x = value("x", ["batch", 64])
    ws = [weight(f"w{i}", rng.standard_normal((64, n)).astype(np.float32))
          for i, n in enumerate(sizes)]  # fmt: skip
    bias = weight("bias", rng.standard_normal(sizes[-1]).astype(np.float32))
    nodes = [ir.node("MatMul", [x, w]) for w in ws[:-1]]
    nodes.append(ir.node("Gemm", [x, ws[-1], bias]))
    joined = ir.node("Concat", [node.outputs[0] for node in nodes], {"axis": 1})
    head = weight("head", rng.standard_normal((sum(sizes), 24)).astype(np.float32))
    last = ir.node("MatMul", [joined.outputs[0], head])
    return save_model(path, [x], [*nodes, joined, last], [*ws, bias, head], opset=opset)


@pytest.mark.parametrize(
    ("wide", "sizes", "products"),
    [((), (64, 32, 48), [144, 24]), ({"w1"}, (64, 32, 48), [112, 32, 24]),
     ((), (32,) * 6, [128, 64, 24])],
)  # fmt: skip
@pytest.mark.parametrize("opset", [14, 20])
def test_products_of_one_operand_become_one(tmp_path, rng, wide, sizes, products, opset):
    source = save_attention(tmp_path / "m.onnx", rng, sizes=sizes, opset=opset)
    linears = list(find_linears(io.load(source).graph))
    shifted = round_to_grid(linears[0].rows(0, sizes[0]) + 1, 4)
    done = quantize_file(
        source, tmp_path / "q.onnx", RECIPES["int4"], wide=wide, grids={"w0": shifted}
    )
    made = [node for node in io.load(done.path).graph if node.op_type == "MatMulNBits"]
    assert sorted(node.attributes.get_int("N") for node in made) == sorted(products)
    assert done.bits == {f"w{i}": 8 if f"w{i}" in wide else 4 for i in range(len(sizes))} | {
        "head": 8
    }
    grids = [round_to_grid(one.rows(0, one.shape[0]), done.bits[one.name]) for one in linears]
    matrices = [grid.values().T.astype(np.float64) for grid in (shifted, *grids[1:])]
    bias = io.load(source).graph.initializers["bias"].const_value.numpy()
    for batch in (1, 3):
        x = rng.standard_normal((batch, 64)).astype(np.float32)
        parts = [x @ matrix for matrix in matrices[:-1]]
        parts[-1] += bias
        wanted = np.concatenate(parts, 1) @ matrices[-1]
        assert np.abs(run(done.path, x=x) - wanted).max() < 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("tied", [True, False])
def test_dynamic_int8_is_near(tmp_path, rng, tied):
    source = save_language_model(tmp_path / "m.onnx", rng, tied=tied)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int8-dynamic"])
    for ids in IDS:
        wanted, ours = run(source, ids=ids).ravel(), run(done.path, ids=ids).ravel()
        assert wanted @ ours / np.linalg.norm(wanted) / np.linalg.norm(ours) > 0.999
    names = [n for n in io.load(done.path).graph.initializers if n.startswith("embed.")]
    assert len(names) == 2


def test_the_operator_attention_of_onnx_is_left_alone(tmp_path, rng):
    """A tool that matches operators by type alone makes an invalid QAttention of it."""
    x = value("x", ["b", "s", 64])
    w = weight("w", rng.standard_normal((64, 64)).astype(np.float32))
    product = ir.node("MatMul", [x, w])
    y = product.outputs[0]
    attention = ir.node("Attention", [y, y, y], {"q_num_heads": 2, "kv_num_heads": 2})
    source = save_model(tmp_path / "m.onnx", [x], [product, attention], [w], opset=23)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int8-dynamic"])
    types = {node.op_type for node in io.load(done.path).graph}
    assert types >= {"Attention", "MatMulInteger"}
    assert "QAttention" not in types
    inputs = rng.standard_normal((1, 5, 64)).astype(np.float32)
    wanted = run(source, x=inputs)
    assert np.abs(run(done.path, x=inputs) - wanted).max() < 0.05 * np.abs(wanted).max()


def test_what_cannot_be_quantized_is_refused(tmp_path, rng):
    x = value("x", ["n", 4])
    node = ir.node("Relu", [x])
    plain = save_model(tmp_path / "plain.onnx", [x], [node], [])
    with pytest.raises(UsageError, match="no product with a constant matrix: use fp32 or fp16"):
        quantize_file(plain, tmp_path / "q.onnx", RECIPES["int4"])
    w = weight("w", rng.standard_normal((64, 64)).astype(np.float32))
    x = value("x", ["n", 64])
    old = save_model(tmp_path / "old.onnx", [x], [ir.node("MatMul", [x, w])], [w], opset=13)
    with pytest.raises(UsageError, match="opset 13, and int4 needs 14"):
        quantize_file(old, tmp_path / "q.onnx", RECIPES["int4"])
    half = save_language_model(tmp_path / "half.onnx", rng, dtype=np.float16)
    with pytest.raises(UsageError, match="needs a float32 model"):
        quantize_file(half, tmp_path / "q.onnx", RECIPES["int8-dynamic"])
    assert not (tmp_path / "q.onnx").exists()
    assert not list(tmp_path.glob(".*"))


STREAMED = """
import sys, threading, time
from pathlib import Path
from torchferry.quantizer import RECIPES, quantize_file
import torchferry.quantizer.grid
def anonymous():
    return int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1])
peak, done, start = [0], threading.Event(), anonymous()
def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous()); time.sleep(0.002)
threading.Thread(target=watch).start()
try:
    quantize_file(Path(sys.argv[1]), Path(sys.argv[2]), RECIPES["int4"])
finally:
    done.set()
print((peak[0] - start) / 1024, "torch" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_model(tmp_path, rng):
    """384 MiB of weights: whole-model tools take twice and four times that."""
    x = value("x", ["n", 4096])
    ws = [weight(f"w{i}.T", np.full((4096, 4096), 0.1, np.float32)) for i in range(6)]
    nodes = []
    for w in ws:
        before = nodes[-1].outputs[0] if nodes else x
        nodes.append(ir.node("MatMul", [before, w]))
    save_model(tmp_path / "m.onnx", [x], nodes, ws)
    command = [sys.executable, "-c", STREAMED, str(tmp_path / "m.onnx"), str(tmp_path / "q.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, torch_loaded = done.stdout.split()
    assert float(grown) < 200
    assert torch_loaded == "False"
