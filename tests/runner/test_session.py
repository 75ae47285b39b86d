import onnx_ir as ir
import pytest
import torch

from torchferry.errors import RunError, UsageError
from torchferry.graph.runtime import LEAST_KEY
from torchferry.runner import Session, run
from torchferry.values.flatten import flatten
from torchferry.values.signature import SIGNATURE_KEY, Signature, Slot

KINDS = {
    torch.float32: "float", torch.float64: "double", torch.float16: "float16",
    torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8e4m3fn",
    torch.float8_e5m2: "float8e5m2", torch.int64: "int64", torch.int32: "int32",
    torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.uint16: "uint16",
    torch.uint32: "uint32", torch.uint64: "uint64", torch.bool: "bool",
}  # fmt: skip


def write(path, body, *, inputs=("x",), outputs=("y",)):
    """A model with the signature ``forward(*inputs) -> (*outputs,)``."""
    text = f'<ir_version: 10, opset_import: ["" : 20]>\nagraph {body}'
    model = ir.from_onnx_text(text)
    structure = flatten(tuple(outputs))[1]
    signature = Signature(
        tuple(inputs),
        tuple(Slot(name, (name,)) for name in inputs),
        {},
        structure,
        tuple([name] for name in outputs),
    )
    model.metadata_props[SIGNATURE_KEY] = signature.to_json()
    ir.save(model, path)
    return path


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_every_dtype_goes_through_unchanged(dtype, shape, tmp_path):
    kind = KINDS[dtype]
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    declared = f"{kind}[{dims}]"
    body = f"({declared} x) => ({declared} y) {{ y = Identity(x) }}"
    session = Session(write(tmp_path / "model.onnx", body))
    given = (torch.rand(shape) * 3).to(dtype)
    (got,) = session(given)
    assert got.dtype == dtype
    assert got.shape == given.shape
    assert got.double().tolist() == given.double().tolist()


ADD = "(float[n, 3] x, float[n, 3] w) => (float[n, 3] y) { y = Add(x, w) }"


def test_views_and_repeated_calls(tmp_path):
    session = Session(write(tmp_path / "model.onnx", ADD, inputs=("x", "w")))
    x, w = torch.randn(3, 4).T[:, :3], torch.randn(8, 3)[::2]
    first = session(x, w)[0]
    kept = first.clone()
    for _ in range(5):
        session(torch.randn(4, 3), torch.randn(4, 3))
    del session
    assert torch.equal(first, kept)  # no view of memory that is gone
    assert torch.equal(first, x + w)


def test_arguments_by_name_and_run(tmp_path):
    path = write(tmp_path / "model.onnx", ADD, inputs=("x", "w"))
    x, w = torch.randn(2, 3), torch.randn(2, 3)
    (got,) = run(path, w=w, x=x)
    assert torch.equal(got, x + w)
    assert Session(path).inputs["x"] == (torch.float32, ["n", 3])


def test_a_node_that_fails_at_run_time_is_named(tmp_path):
    body = """(float[n, m] x, float[k, l] w) => (float[a, b] y) {
        [the_product] y = MatMul(x, w)
    }"""
    session = Session(write(tmp_path / "model.onnx", body, inputs=("x", "w")))
    said = r"onnxruntime failed: .*, on x \(2, 3\), w \(2, 3\)"
    with pytest.raises(RunError, match=said) as caught:
        session(torch.ones(2, 3), torch.ones(2, 3))
    assert caught.value.node == "the_product"
    assert caught.value.exit_code == 4


def test_a_model_onnxruntime_cannot_load(tmp_path):
    body = "(bfloat16[n] x) => (bfloat16[n] y) { [no_kernel] y = Mul(x, x) }"
    path = write(tmp_path / "model.onnx", body)
    with pytest.raises(RunError, match="cannot load") as caught:
        Session(path)
    assert caught.value.node == "no_kernel"


def test_files_that_are_not_ours(tmp_path):
    with pytest.raises(UsageError, match="no model at"):
        Session(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(RunError, match="cannot load"):
        Session(tmp_path / "text.onnx")
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nagraph {ADD}')
    ir.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(UsageError, match="was not written by torchferry"):
        Session(tmp_path / "foreign.onnx")


def test_an_unknown_provider_is_refused(tmp_path):
    path = write(tmp_path / "model.onnx", ADD, inputs=("x", "w"))
    with pytest.raises(UsageError, match="no SomeExecutionProvider here"):
        Session(path, providers=["SomeExecutionProvider"])


def test_a_session_that_was_unloaded_loads_again(tmp_path):
    session = Session(write(tmp_path / "model.onnx", ADD, inputs=("x", "w")), threads=1)
    first = session.session
    x, w = torch.randn(2, 3), torch.randn(2, 3)
    expected = session(x, w)
    session.unload()
    assert torch.equal(session(x, w)[0], expected[0])
    assert session.session is not first
    assert session.session.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize("opset", [20, 99], ids=["that loads", "that does not load"])
def test_a_model_for_a_newer_onnxruntime(opset, tmp_path):
    path = write(tmp_path / "model.onnx", ADD, inputs=("x", "w"))
    model = ir.load(path)
    model.metadata_props[LEAST_KEY] = "1.99"
    model.opset_imports[""] = opset
    ir.save(model, path)
    with pytest.raises(UsageError, match=r"model.onnx needs onnxruntime 1.99 or newer, and the"):
        Session(path)
