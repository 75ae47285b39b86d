"""Which of PyTorch's operators convert, and with the right values?

PyTorch's own OpInfo database (``torch.testing._internal``) lists its operators with sample inputs.
Each sample is exported, converted by ours and by torch.onnx, run in onnxruntime and compared with
eager, or with eager in float64 where eager itself is further off. Random operators are compared by
shape, dtype and distribution. Every operator has a process of its own, so that a crash is a row.
Writes opinfo.json and its section of RESULTS.md; exits 1 when a bar is missed.

    python benchmarks/opinfo.py [--dtype float32 --dtype int64] [--samples 2] [--jobs 2]
    python benchmarks/opinfo.py --only 'nn.functional' --dtype float32 --no-write
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx_ir as ir
import onnxruntime
import torch
from opinfo_compare import compare, distributed, nearer, same_elements
from opinfo_table import told
from record import save
from torch.onnx._internal.exporter import _registration
from torch.testing._internal import common_methods_invocations as invocations
from torch.utils import _pytree as pytree

from torchferry.converter import torchlib
from torchferry.converter.translate import translate

DTYPES = ("float32", "int64", "bool", "float16")
# Which of several equal elements an index names is not defined.
TIES = {"sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode"}
# From the best outcome to the worst; an operator has the worst of its samples.
OUTCOMES = ("pass", "random", "no_sample", "eager", "capture", "refused", "load", "run", "crash",
            "wrong")  # fmt: skip


class Sample(torch.nn.Module):
    """One call of an operator; its tensors are the inputs."""

    def __init__(self, operator: Any, arguments: Any) -> None:
        super().__init__()
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.operator = operator
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.constants)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        result = self.operator(*args, **kwargs)
        return [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]


def main() -> None:
    options = parse()
    chosen = [op for op in invocations.op_db if re.search(options.only, full_name(op))]
    warm_up()
    results = {}
    for dtype in options.dtype or DTYPES:
        start = time.monotonic()
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(partial(in_process, dtype, options), chosen))
        results[dtype] = rows
        for row in rows:
            ours = row["with onnxscript's"]
            if options.verbose or ours["outcome"] not in ("pass", "random", "no_sample"):
                print(f"{ours['outcome']:9} {row['name']:45} {ours['reason'][:180]}")
        for column in COLUMNS:
            counts = Counter(row[column]["outcome"] for row in rows)
            text = ", ".join(
                f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]
            )
            print(f"{dtype}, {column}: {text} ({time.monotonic() - start:.0f} s)", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1), "utf-8")
    text, passed = told(results, options.samples)
    if not options.no_write:
        save("opinfo", outcomes(results), text)
    sys.exit(not passed)


def outcomes(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, str]]:
    """By dtype and operator, the outcomes of the columns in their order."""
    return {
        dtype: {
            row["name"]: " ".join(row[column]["outcome"] for column in COLUMNS) for row in rows
        }
        for dtype, rows in results.items()
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression on the operator's name")
    parser.add_argument("--dtype", action="append", help=f"default: {', '.join(DTYPES)}")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--static", action="store_true", help="no dynamic dimensions")
    parser.add_argument("--no-peer", action="store_true", help="without torch.onnx")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an operator")
    parser.add_argument("--json", type=Path, help="a file of its own for the rows")
    parser.add_argument("--no-write", action="store_true", help="RESULTS.md stays as it is")
    parser.add_argument("--verbose", action="store_true", help="operators that pass, too")
    return parser.parse_args()


def warm_up() -> None:
    """Do once, before the children are made, what every export would do again."""
    logging.disable(logging.WARNING)
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    _registration.ONNXRegistry.from_torchlib = staticmethod(
        cache(_registration.ONNXRegistry.from_torchlib)
    )
    torchlib.borrowed(torch.ops.aten.add.Tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(torch.nn.Identity(), (torch.ones(1),))
        translate(program, 20)
        by_torch(program, 20)


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


COLUMNS = ("ours", "with onnxscript's", "torch.onnx")


def in_process(dtype: str, options: argparse.Namespace, op: Any) -> dict[str, Any]:
    """The row of an operator, from a child that may crash or hang."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(writer, op, dtype, options), daemon=True)
    child.start()
    writer.close()
    row: dict[str, Any] = {"name": full_name(op)}
    crash = {"outcome": "crash", "reason": "the process ended"}
    try:
        while len(row) <= len(COLUMNS):
            if not reader.poll(options.timeout):
                crash = {"outcome": "crash", "reason": f"nothing within {options.timeout} s"}
                break
            column, outcome, reason = reader.recv()
            row[column] = {"outcome": outcome, "reason": reason}
    except EOFError:
        pass
    child.kill()
    child.join()
    return {"name": row["name"], **{column: row.get(column, crash) for column in COLUMNS}}


def work(writer: Any, op: Any, dtype: str, options: argparse.Namespace) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  (for the life of the child)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        if not op.supports_dtype(getattr(torch, dtype), "cpu"):
            for column in COLUMNS:
                writer.send((column, "no_sample", "the dtype is not supported"))
            return
        captured = [captures(op, sample, options) for sample in samples_of(op, dtype, options)]
    except BaseException as error:  # noqa: BLE001  (the child's last word)
        for column in COLUMNS:
            writer.send((column, "crash", one_line(error)))
        return
    borrowing = Borrowing()
    with_borrowed = worst_of(captured, lambda p: borrowing.translate(p, options.opset))
    writer.send(("with onnxscript's", *with_borrowed))
    if borrowing.used:
        writer.send(("ours", "refused", "only onnxscript has a lowering"))
    else:
        writer.send(("ours", *with_borrowed))
    if options.no_peer:
        writer.send(("torch.onnx", "no_sample", "not asked for"))
    else:
        writer.send(("torch.onnx", *worst_of(captured, lambda p: by_torch(p, options.opset))))


class Borrowing:
    """Our conversion, and whether it took a lowering of onnxscript."""

    def __init__(self) -> None:
        self.used = False
        self._translate = torchlib.translate
        torchlib.translate = self._counted  # of this process only

    def _counted(self, scope: Any, node: Any) -> Any:
        self.used = True
        return self._translate(scope, node)

    def translate(self, program: Any, opset: int) -> ir.Model:
        return translate(program, opset)


def by_torch(program: Any, opset: int) -> ir.Model:
    return torch.onnx.export(program, (), dynamo=True, opset_version=opset, verbose=False).model


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def samples_of(op: Any, dtype: str, options: argparse.Namespace) -> Iterator[Sample]:
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False)
    for _, sample in zip(range(options.samples), samples, strict=False):
        yield Sample(op.op, ((sample.input, *sample.args), dict(sample.kwargs)))


def captures(op: Any, module: Sample, options: argparse.Namespace) -> tuple[Any, ...]:
    """Operator, sample, eager's result, program; or an outcome and its reason."""
    try:
        with torch.no_grad():
            expected = module(*(t.clone() for t in module.tensors))
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "eager", one_line(error)
    program = capture(module, module.tensors, dynamic=not options.static)
    if isinstance(program, str):
        return "capture", program
    return op.name, module, expected, program


def worst_of(captured: list[Any], convert: Callable[[Any], ir.Model]) -> tuple[str, str]:
    found: list[tuple[str, str]] = []
    for index, made in enumerate(captured):
        try:
            outcome, reason = made if len(made) == 2 else one(*made, convert)
        except BaseException as error:  # noqa: BLE001  (it is the row)
            outcome, reason = "crash", one_line(error)
        found.append((outcome, f"sample {index}: {reason}" if reason else ""))
    return max(found, key=lambda row: OUTCOMES.index(row[0]), default=("no_sample", "none"))


def one(
    name: str, module: Sample, expected: Any, program: Any, convert: Callable[[Any], ir.Model]
) -> tuple[str, str]:
    inputs = module.tensors
    targets = [node.target for node in program.graph.nodes]
    seeded = any(torch.Tag.nondeterministic_seeded in getattr(t, "tags", ()) for t in targets)
    random = seeded or any("empty" in str(t) for t in targets)  # what was in memory before
    try:
        model = convert(program)
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "refused", one_line(error)
    try:
        session = load(model)
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "load", one_line(error)
    used = [i.name for i in session.get_inputs()]
    names = [value.name for value in model.graph.inputs]
    feeds = {n: feed(t) for n, t in zip(names, inputs, strict=True) if n in used}

    def run() -> list[torch.Tensor]:
        wanted = [o.name for o in session.get_outputs()]
        return [tensor_of(value) for value in session.run_with_ort_values(wanted, feeds)]

    try:
        got = run()
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "run", one_line(error)
    constants = [not isinstance(s.arg, torch.export.graph_signature.ConstantArgument)
                 for s in program.graph_signature.output_specs]  # fmt: skip

    def kept(result: list[Any]) -> list[Any]:
        return [e for e, k in zip(result, constants, strict=True) if k]

    if name in TIES and same_elements(inputs[0], kept(expected), got):
        return "pass", ""
    outcome, reason = compare(kept(expected), got, random)
    if outcome == "wrong" and not random and (exact := in_double(module)) is not None:
        outcome, reason = nearer(kept(exact), kept(expected), got) or (outcome, reason)
    if outcome == "random" and seeded:
        return distributed(lambda: kept(module(*(t.clone() for t in inputs))), run)
    return outcome, reason


def in_double(module: Sample) -> Any:
    """Eager's result in float64, or None where it has none."""
    if not any(tensor.dtype.is_floating_point for tensor in module.tensors):
        return None
    doubles = [t.double() if t.dtype.is_floating_point else t.clone() for t in module.tensors]
    try:
        with torch.no_grad():
            return module(*doubles)
    except Exception:  # noqa: BLE001  (there is none)
        return None


def capture(module: Sample, inputs: list[torch.Tensor], *, dynamic: bool) -> Any:
    """The program; with dynamic dimensions if that is possible, or why there is none."""
    reason = ""
    auto = tuple(dict.fromkeys(range(t.ndim), torch.export.Dim.AUTO) for t in inputs)
    for shapes in ([(auto,)] if dynamic else []) + [None]:
        try:
            with torch.no_grad():
                return torch.export.export(
                    module, tuple(inputs), dynamic_shapes=shapes, strict=False
                )
        except Exception as error:  # noqa: BLE001  (it is the row)
            reason = f"{type(error).__name__}: {error}"
    return reason


def load(model: ir.Model) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )


def feed(tensor: torch.Tensor) -> Any:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    element = ir.tensor_adapters.from_torch_dtype(tensor.dtype).value
    tensor = tensor.resolve_neg().contiguous()
    array = (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element)


def tensor_of(value: Any) -> torch.Tensor:
    if value.element_type() == ir.DataType.BFLOAT16:
        return torch.from_dlpack(value._ortvalue.to_dlpack()).clone()
    return torch.from_numpy(value.numpy().copy())


if __name__ == "__main__":
    main()
