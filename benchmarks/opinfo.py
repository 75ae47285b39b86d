"""Which of PyTorch's operators convert, and with the right values?

PyTorch's own OpInfo database (``torch.testing._internal``) lists its operators with sample inputs.
Each sample is exported, converted, run in onnxruntime and compared with eager; every operator in
a process of its own, so that a crash is a row.

    python benchmarks/opinfo.py --only 'nn.functional' --dtype float32 --samples 2
    python benchmarks/opinfo.py --exporter torch_onnx --json out.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx_ir as ir
import onnxruntime
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

TOLERANCE = {
    torch.float16: (1e-2, 1e-2), torch.float32: (1e-4, 1e-4), torch.float64: (1e-6, 1e-6),
}  # fmt: skip
# Which of several equal elements an index names is not defined.
TIES = {"sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode"}
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
    chosen = [op for op in op_db if re.search(options.only, full_name(op))]
    start = time.monotonic()
    if options.exporter == "ours":
        from torchferry.converter.torchlib import borrowed

        borrowed(torch.ops.aten.add.Tensor)  # imported once, before the children are made
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda op: in_process(op, options), chosen))
    for row in rows:
        if options.verbose or row["outcome"] not in ("pass", "random", "no_sample"):
            print(f"{row['outcome']:9} {row['name']:45} {row['reason'][:180]}")
    counts = Counter(row["outcome"] for row in rows)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    print(f"{len(rows)} operators, {options.dtype}, {options.exporter}: {told}"
          f" ({time.monotonic() - start:.0f} s)")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression on the operator's name")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator")
    parser.add_argument("--exporter", default="ours", choices=("ours", "torch_onnx"))
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--static", action="store_true", help="no dynamic dimensions")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an operator")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true", help="operators that pass, too")
    return parser.parse_args()


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def in_process(op: Any, options: argparse.Namespace) -> dict[str, str]:
    """The row of an operator, from a child that may crash or hang."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(writer, op, options), daemon=True)
    child.start()
    writer.close()
    row = {"outcome": "crash", "reason": f"nothing within {options.timeout} s"}
    if reader.poll(options.timeout):
        try:
            row = reader.recv()
        except EOFError:
            row = {"outcome": "crash", "reason": "the process ended"}
    child.kill()
    child.join()
    return {"name": full_name(op), **row}


def work(writer: Any, op: Any, options: argparse.Namespace) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  (for the life of the child)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        outcome, reason = outcome_of(op, options)
    except BaseException as error:  # noqa: BLE001  (the child's last word)
        outcome, reason = "crash", f"{type(error).__name__}: {error}"
    writer.send({"outcome": outcome, "reason": " ".join(reason.split())})


def outcome_of(op: Any, options: argparse.Namespace) -> tuple[str, str]:
    dtype = getattr(torch, options.dtype)
    if not op.supports_dtype(dtype, "cpu"):
        return "no_sample", "the dtype is not supported"
    torch.manual_seed(0)
    found: list[tuple[str, str]] = []
    samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    for index, sample in zip(range(options.samples), samples, strict=False):
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        outcome, reason = one(op.name, Sample(op.op, arguments), options)
        found.append((outcome, f"sample {index}: {reason}" if reason else ""))
    return max(found, key=lambda row: OUTCOMES.index(row[0]), default=("no_sample", "none"))


def one(name: str, module: Sample, options: argparse.Namespace) -> tuple[str, str]:
    inputs = module.tensors
    try:
        with torch.no_grad():
            expected = module(*(t.clone() for t in inputs))
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "eager", str(error)
    program = capture(module, inputs, dynamic=not options.static)
    if isinstance(program, str):
        return "capture", program
    random = any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        or "empty" in str(node.target)  # what was in memory before
        for node in program.graph.nodes
    )
    try:
        model = convert(program, options)
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "refused", f"{type(error).__name__}: {error}"
    try:
        session = load(model)
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "load", str(error)
    used = [i.name for i in session.get_inputs()]
    names = [value.name for value in model.graph.inputs]
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if name in used}
    try:
        got = session.run_with_ort_values(
            [o.name for o in session.get_outputs()], {k: feed(t) for k, t in feeds.items()}
        )
    except Exception as error:  # noqa: BLE001  (it is the row)
        return "run", str(error)
    constants = [not isinstance(s.arg, torch.export.graph_signature.ConstantArgument)
                 for s in program.graph_signature.output_specs]  # fmt: skip
    wanted = [e for e, kept in zip(expected, constants, strict=True) if kept]
    found = [tensor_of(value) for value in got]
    if name in TIES and same_elements(inputs[0], wanted, found):
        return "pass", ""
    return compare(wanted, found, random)


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


def convert(program: Any, options: argparse.Namespace) -> ir.Model:
    if options.exporter == "torch_onnx":
        return torch.onnx.export(
            program, (), dynamo=True, opset_version=options.opset, verbose=False
        ).model
    from torchferry.converter.translate import translate

    return translate(program, options.opset)


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


def compare(expected: list[Any], got: list[torch.Tensor], random: bool) -> tuple[str, str]:
    if len(expected) != len(got):
        return "wrong", f"{len(got)} outputs instead of {len(expected)}"
    for index, (other, value) in enumerate(zip(expected, got, strict=True)):
        # a Python float is a double
        double = torch.float64 if isinstance(other, float) else None
        tensor = other if isinstance(other, torch.Tensor) else torch.tensor(other, dtype=double)
        pairs = tensor.dtype.is_complex and value.shape[-1:] == (2,)
        mine = complex_of(value) if pairs else value
        if mine.dtype != tensor.dtype or mine.shape != tensor.shape:
            return "wrong", (f"output {index} is {mine.dtype} {tuple(mine.shape)}, not "
                             f"{tensor.dtype} {tuple(tensor.shape)}")  # fmt: skip
        if random:
            continue
        rtol, atol = TOLERANCE.get(tensor.dtype, (1e-4, 1e-4))
        if not torch.allclose(mine, tensor, rtol=rtol, atol=atol, equal_nan=True):
            return "wrong", f"output {index}: {worst(tensor, mine)}"
    return ("random" if random else "pass"), ""


def same_elements(x: torch.Tensor, expected: list[Any], got: list[torch.Tensor]) -> bool:
    """Whether the indices point at equal elements, where the values agree: which of them is open.

    Eager's own choice among equal elements changes with the size and the dtype.
    """
    *values, other = expected
    *mine, indices = got
    if not all(torch.equal(a, b) for a, b in zip(values, mine, strict=True)):
        return False
    if indices.shape != other.shape or indices.ndim != x.ndim:
        return False
    return (
        any(
            torch.equal(torch.gather(x, axis, indices), torch.gather(x, axis, other))
            for axis in range(x.ndim)
            if max(indices.max().item(), other.max().item()) < x.shape[axis]
        )
        if indices.numel()
        else True
    )


def complex_of(pairs: torch.Tensor) -> torch.Tensor:
    # numpy's strides of an empty array are not those that view_as_complex wants
    return torch.view_as_complex(torch.empty(pairs.shape, dtype=pairs.dtype).copy_(pairs))


def worst(expected: torch.Tensor, got: torch.Tensor) -> str:
    difference = (expected.to(torch.complex128) - got.to(torch.complex128)).abs()
    return f"max abs {difference.nan_to_num(torch.inf).max():.3g}"


if __name__ == "__main__":
    main()
