from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.compiler.compiled import CompiledGraph
from torchferry.compiler.record import Settings

X, W = torch.randn(2, 32), torch.randn(32, 32)


def run(settings: Settings, calls: int = 1) -> list[Any]:
    module = make_fx(lambda x, w: ((x @ w).relu(),), tracing_mode="fake")(X, W)
    graph = CompiledGraph(module, [1], settings)
    return [graph([X, W])[0] for _ in range(calls)]


def test_what_is_stored() -> None:
    storage: dict[str, Any] = {}
    run(Settings(20, storage=storage), calls=2)
    (instance,) = storage["instance"]
    assert set(instance) == {
        "graph_module", "onnx", "sess", "providers", "is_dimension_in", "is_dimension_out",
        "input_names", "output_names", "inputs", "outputs",
    }  # fmt: skip
    assert [node.op_type for node in instance["onnx"].graph.node] == ["MatMul", "Relu"]
    assert isinstance(instance["sess"], onnxruntime.InferenceSession)
    assert instance["is_dimension_in"] == [(False, 2, None, onnx.TensorProto.FLOAT)]
    assert instance["is_dimension_out"] == [(False, 2, None, onnx.TensorProto.FLOAT)]
    assert (instance["input_names"], instance["output_names"]) == (["x_1"], ["output_0"])
    assert instance["inputs"] == instance["outputs"] == []


def test_values_are_kept_on_request() -> None:
    storage: dict[str, Any] = {}
    found = run(Settings(20, storage=storage, keep_values=True), calls=2)
    (instance,) = storage["instance"]
    assert len(instance["inputs"]) == len(instance["outputs"]) == 2
    torch.testing.assert_close(instance["inputs"][1], [X])
    torch.testing.assert_close(instance["outputs"][0], [found[0]])


def test_dumps_are_numbered(tmp_path: Path) -> None:
    settings = Settings(20, dump_prefix=str(tmp_path / "dumps" / "graph"))
    expected = run(settings)[0]
    run(settings)
    names = {path.name for path in (tmp_path / "dumps").iterdir()}
    assert names == {
        f"graph_{n}{end}" for n in (0, 1) for end in (".onnx", ".onnx_data", ".txt")
    }  # fmt: skip
    session = onnxruntime.InferenceSession(tmp_path / "dumps" / "graph_1.onnx")
    (found,) = session.run(None, {"x_1": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected)
    assert "aten.mm" in (tmp_path / "dumps" / "graph_0.txt").read_text("utf-8")
