"""What the CUDA provider is told, and fixed places, which a CPU session takes as well."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest
import torch

from torchferry.compiler.cuda import (
    FixedPlaces,
    captures_graphs,
    provider_name,
    run_options,
    stream_of,
    with_device,
)
from torchferry.compiler.session import TensorSession, providers_for
from torchferry.errors import RunError

CPU = torch.device("cpu")
CUDA = "CUDAExecutionProvider"
TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[N,3] x, bool[N] b) => (float[N,3] y, bool[N] c)
{ y = Exp(x) c = Not(b) }"""


@pytest.mark.parametrize(
    ("given", "stream", "expected"),
    [
        ([CUDA, "CPUExecutionProvider"], 0, [(CUDA, {"device_id": "1"}), "CPUExecutionProvider"]),
        ([CUDA], 77, [(CUDA, {"device_id": "1", "user_compute_stream": "77"})]),
        (
            [(CUDA, {"device_id": 0, "enable_cuda_graph": True})],
            0,
            [(CUDA, {"device_id": "0", "enable_cuda_graph": "1"})],
        ),
        ([("CPUExecutionProvider", {})], 77, ["CPUExecutionProvider"]),
    ],
    ids=["device", "stream", "given options stay", "no CUDA"],
)
def test_what_a_provider_is_told(given: Any, stream: int, expected: Any) -> None:
    assert with_device(given, torch.device("cuda", 1), stream) == expected


def test_cuda_graphs_are_asked_for_by_an_option() -> None:
    assert not captures_graphs([CUDA, (CUDA, {"enable_cuda_graph": "0"})])
    assert captures_graphs([(CUDA, {"enable_cuda_graph": "1"})])


def test_names_and_streams_without_cuda() -> None:
    assert provider_name((CUDA, {})) == provider_name(CUDA) == CUDA
    assert stream_of(CPU) == 0
    entry = "disable_synchronize_execution_providers"
    assert run_options(wait=False).get_run_config_entry(entry) == "1"
    with pytest.raises(RuntimeError, match=entry):
        run_options(graph=3).get_run_config_entry(entry)
    assert run_options(graph=3).get_run_config_entry("gpu_graph_id") == "3"


def test_fixed_places_give_results_of_their_own_at_every_size() -> None:
    session = TensorSession(ir.from_onnx_text(TEXT), ["CPUExecutionProvider"], CPU)
    waited: list[int] = []
    fixed = FixedPlaces(session.session, session._usual, lambda: waited.append(1))
    kept = []
    for rows in (2, 4, 2, 1, 0, 4):
        x, b = torch.randn(rows, 3), torch.arange(rows) > 1
        y, c = fixed([x, b])
        kept.append((y, x.exp()))
        assert torch.equal(c, ~b)
    for y, expected in kept:  # later runs at the same size wrote nothing into them
        torch.testing.assert_close(y, expected)
    assert len(waited) == 6


def test_memory_is_made_once_for_each_combination_of_shapes() -> None:
    session = TensorSession(ir.from_onnx_text(TEXT), ["CPUExecutionProvider"], CPU)
    runs: list[onnxruntime.RunOptions] = []

    def usual(tensors: Any, options: Any) -> Any:
        runs.append(options)
        return session._usual(tensors, options)

    fixed = FixedPlaces(session.session, usual, lambda: None)
    for rows in (2, 4, 2, 4, 2):
        fixed([torch.randn(rows, 3), torch.ones(rows, dtype=torch.bool)])
    assert [run.get_run_config_entry("gpu_graph_id") for run in runs] == ["-1", "-1"]


def test_a_pair_of_a_provider_that_is_not_there_is_refused_by_name() -> None:
    run = torch.compile(
        torch.relu, backend="torchferry", options={"providers": [(CUDA, {"device_id": 0})]}
    )
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("onnxruntime has CUDA")
    torch.testing.assert_close(run(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
    with pytest.raises(RunError, match=f"no {CUDA}"):
        providers_for(CPU, [(CUDA, {"device_id": 0})])
