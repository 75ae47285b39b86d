"""The ways that runtime.py makes a model in: ours, and those of other optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx
import onnx_ir as ir
import onnxruntime
import torch
from runtime_models import Case

import torchferry as tf
from torchferry.graph import io

__all__ = ["MODULES", "OURS", "QUANTIZED", "WAYS", "by_torch", "is_written", "session", "unfused"]

PATTERNS = "default+onnxruntime"
OURS = "ours"
QUANTIZED = "ours, after quantizing"
MODULES = {"onnxslim": "onnxslim", "onnxsim": "onnxsim"}
"""What has to be installed for a way."""

Way = Callable[[Case, Path, Path], None]


def dims_of(shapes: Any, known: dict[str, Any] | None = None) -> Any:
    """Names of dimensions as ``torch.export.Dim``, so that equal ones are one."""
    known = {} if known is None else known
    if isinstance(shapes, str):
        name, _, more = shapes.partition("+")
        dim = known.setdefault(name, torch.export.Dim(name))
        return dim + int(more) if more else dim
    if isinstance(shapes, dict):
        return {key: dims_of(item, known) for key, item in shapes.items()}
    return [dims_of(item, known) for item in shapes]


def by_torch(case: Case, path: Path, *, optimize: bool = True) -> None:
    """torch.onnx's export."""
    program = torch.onnx.export(
        case.module, (), kwargs=case.kwargs, dynamic_shapes=dims_of(case.shapes),
        dynamo=True, verbose=False, optimize=optimize,
    )  # fmt: skip
    assert program is not None
    program.save(path)


def exported(case: Case) -> ir.Model:
    """Our export, not rewritten."""
    return tf.to_onnx(case.module, (), case.kwargs, dynamic_shapes=case.shapes).model


def unfused(case: Case, path: Path) -> None:
    """Our export with operators of ONNX only, none of them fused."""
    io.save(tf.optimize(exported(case), "default"), path)


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# Quantized weights -------------------------------------------------------------------------------


class _Calls:
    """One call of a model, as onnxruntime's calibration reads it."""

    def __init__(self, case: Case, path: Path) -> None:
        names = [item.name for item in session(path, 1).get_inputs()]
        self.left = [case.feeds(names)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def dynamic(_: Case, source: Path, to: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        str(source), str(to), weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"]
    )


def static(case: Case, source: Path, to: Path) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    quantize_static(
        str(source), str(to), _Calls(case, source), quant_format=QuantFormat.QDQ,
        weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"],
    )  # fmt: skip


def four_bits(_: Case, source: Path, to: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(
        onnx.load(source), block_size=32, is_symmetric=True, accuracy_level=4
    )
    made.process()
    made.model.save_model_to_file(str(to))


_WEIGHTS: dict[str, Way] = {"int8": dynamic, "int8 QDQ": static, "int4": four_bits}


def quantized(case: Case, path: Path) -> None:
    """Quantize the weights of a file in its place, if the case asks for it."""
    if case.weights:
        whole = path.with_name("whole.onnx")
        path.rename(whole)
        # The rest of it lies in a file whose name is written in it.
        _WEIGHTS[case.weights](case, whole, path)


# Ways --------------------------------------------------------------------------------------------


def ours(case: Case, _: Path, to: Path) -> None:
    io.save(tf.optimize(exported(case), PATTERNS), to)


def ours_of_torch(_: Case, source: Path, to: Path) -> None:
    io.save(tf.optimize(source, PATTERNS), to)


def ours_after(case: Case, source: Path, to: Path) -> None:
    """Quantize torch.onnx's model first."""
    if not case.weights:
        raise LookupError("the weights are not quantized")
    first = to.with_name("first.onnx")
    _WEIGHTS[case.weights](case, source, first)
    io.save(tf.optimize(first, PATTERNS), to)


def as_it_is(_: Case, source: Path, to: Path) -> None:
    onnx.save(onnx.load(source), to)


def by_onnxslim(_: Case, source: Path, to: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), to)


def by_onnxsim(_: Case, source: Path, to: Path) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(source))[0], to)


def by_onnxscript(_: Case, source: Path, to: Path) -> None:
    from onnxscript import optimizer
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model = ir.load(source)
    optimizer.optimize_ir(model)
    optimize_for_ort(model)
    ir.save(model, to)


def by_onnxruntime(case: Case, source: Path, to: Path) -> None:
    from onnxruntime.transformers import optimizer

    if not case.kind:
        raise LookupError("onnxruntime.transformers has no such architecture")
    found = optimizer.optimize_model(
        str(source), model_type=case.kind, num_heads=case.heads, hidden_size=case.hidden,
        opt_level=0, use_gpu=False,
    )  # fmt: skip
    found.save_model_to_file(str(to))


_PLAIN: dict[str, Way] = {
    OURS: ours,
    "ours, of torch.onnx's": ours_of_torch,
    "torch.onnx": as_it_is,
    "onnxslim": by_onnxslim,
    "onnxsim": by_onnxsim,
    "optimize_for_ort": by_onnxscript,
    "onnxruntime.transformers": by_onnxruntime,
}


def _then_quantized(way: Way) -> Way:
    def make(case: Case, source: Path, to: Path) -> None:
        way(case, source, to)
        quantized(case, to)

    return make


WAYS: dict[str, Way] = {
    **{name: _then_quantized(way) for name, way in _PLAIN.items()},
    QUANTIZED: ours_after,
}
"""Each writes a file; where weights are to be quantized, they are after all else, but for one."""


def is_written(name: str, case: Case, source: Path, path: Path) -> bool:
    """Whether a way writes a file that onnxruntime loads; why a peer does not is printed."""
    try:
        WAYS[name](case, source, path)
        session(path, 1)
    except Exception as error:  # peers raise anything: that is their result
        if name.startswith(OURS) and name != QUANTIZED:
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        print(f"# {name} is left out: {first[:150]}", flush=True)
        return False
    return True
