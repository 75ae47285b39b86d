"""Does PyTorch's own test material pass under torch.compile(backend="torchferry")?

PyTorch tests its compilers with the samples of its OpInfo and ModuleInfo databases, of its
higher-order operators, custom operators and autograd functions; they are installed with it
(``torch.testing._internal``). Each sample is compiled with our backend and with ``aot_eager``,
which runs the same graphs in PyTorch, and compared with eager: values, dtypes, strides, and the
gradients where there are any. A sample that only ours fails is a fault of ours. Every case has a
process of its own, so that a crash is a row. Writes compile_suite.json and its section of
RESULTS.md beside this file; exits 1 when there is a fault.

    python benchmarks/compile_suite.py rows.jsonl [--only nn.functional] [--every 5] [--no-write]
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import multiprocessing
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from opinfo_compare import same_elements
from record import machine, markdown, save
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db
from torch.utils import _pytree as pytree

from torchferry.compiler import onnx_custom_backend

QUESTION = 'Does PyTorch\'s own test material pass under torch.compile(backend="torchferry")?'
PEER, OURS = "aot_eager", "torchferry"
TOLERANCE = 1e-3  # what PyTorch's own compiler is held to, by its operator tests
Call = Callable[[], Any]


@dataclass
class Row:
    """A case: what each backend made of its samples, "" for right."""

    kind: str
    name: str
    samples: int = 0
    sessions: int = 0
    said: dict[str, str] = field(default_factory=dict)

    @property
    def fault(self) -> bool:
        """Whether ours fails what the same graphs in PyTorch pass."""
        return bool(self.said.get(OURS)) and not self.said.get(PEER)


@dataclass
class Sample:
    """A function and what it is called with; a fresh copy of both for each call."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any

    def __call__(self, compiled: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
        """The results and the gradients of what was given."""
        function, args, kwargs = self.function, *fresh((self.args, self.kwargs))
        if isinstance(function, torch.nn.Module):
            function = copy.deepcopy(function)
        torch.manual_seed(0)
        found = compiled(function)(*args, **kwargs)
        given = [x for x in leaves((args, kwargs)) if x.requires_grad and x.is_leaf]
        if isinstance(function, torch.nn.Module):
            given += function.parameters()
        made = [y for y in leaves(found) if y.requires_grad]
        gradients: list[Any] = []
        if given and made:
            weights = [torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y) for y in made]
            gradients = list(torch.autograd.grad(made, given, weights, allow_unused=True))
        return found, gradients


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def fresh(value: Any) -> Any:
    """Copies of the tensors, with their strides."""

    def copied(leaf: Any) -> Any:
        if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided:
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(copied, value)


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with code of its own, so that nothing compiled before is found for it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace()
    return call


# Cases -----------------------------------------------------------------------------------------


def operator_samples(info: Any) -> Iterator[Sample]:
    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    grad = info.supports_autograd and dtype.is_floating_point
    for given in info.sample_inputs("cpu", dtype, requires_grad=grad):
        yield Sample(called(info.get_op()), (given.input, *given.args), given.kwargs)


def module_samples(info: Any) -> Iterator[Sample]:
    for training in (True, False):
        samples = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for given in islice(samples, 2):
            made = given.constructor_input
            torch.manual_seed(1)
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            if given.forward_input is not None:
                yield Sample(module, given.forward_input.args, given.forward_input.kwargs)


def cases() -> dict[tuple[str, str], Callable[[], Iterator[Sample]]]:
    """What makes the samples of each case, by kind and name."""
    found: dict[tuple[str, str], Callable[[], Iterator[Sample]]] = {}
    databases = {"operator": op_db, "higher-order": hop_db, "custom operator": custom_op_db,
                 "autograd function": autograd_function_db}  # fmt: skip
    for kind, database in databases.items():
        for info in database:
            name = f"{info.name}.{info.variant_test_name}".rstrip(".")
            found[kind, name] = partial(operator_samples, info)
    for info in module_db:
        found["module", info.name] = partial(module_samples, info)
    return found


# Checks ----------------------------------------------------------------------------------------


def differs(sample: Sample, expected: tuple[Any, list[Any]], compiled: Any) -> str:
    """What is wrong with a backend's results, or ""."""
    try:
        found = sample(compiled)
        torch.testing.assert_close(
            found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        if chosen(sample, expected[0], found[0]):
            return ""
        return " ".join(f"{error}".split())[:200]
    except Exception as error:  # noqa: BLE001  (whatever is raised is the result)
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    for a, b in zip(leaves(found[0]), leaves(expected[0]), strict=True):
        if a.layout is torch.strided and b.numel() > 1 and steps(a) != steps(b):
            return f"strides {a.stride()}, not {b.stride()}"
    return ""


def steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: an axis of size 1 is never stepped along."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1]


def chosen(sample: Sample, expected: Any, found: Any) -> bool:
    """Whether indices differ, but are those of equal elements."""
    try:
        return same_elements(sample.args[0], leaves(expected), leaves(found))
    except (IndexError, RuntimeError, ValueError):
        return False


def check(kind: str, name: str, most: int) -> Row:
    row = Row(kind, name, said={PEER: "", OURS: ""})
    storage: dict[str, Any] = {"instance": []}
    backends = {PEER: PEER, OURS: partial(onnx_custom_backend, storage=storage)}
    for sample in islice(cases()[kind, name](), most):
        try:
            expected, again = sample(lambda f: f), sample(lambda f: f)
            torch.testing.assert_close(again, expected, equal_nan=True)
        except Exception:  # noqa: BLE001  (eager fails, or returns what memory held)
            continue
        row.samples += 1
        for backend, compile_with in backends.items():
            torch._dynamo.reset()
            if not row.said[backend]:
                compiled: Any = partial(torch.compile, backend=compile_with)
                row.said[backend] = differs(sample, expected, compiled)
    row.sessions = len(storage["instance"])
    return row


def report(kind: str, name: str, most: int, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    for logger in ("torchferry", "torch._dynamo"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        row = check(kind, name, most)
    except Exception:  # noqa: BLE001  (its samples need what is not here, such as a GPU)
        row = Row(kind, name)
    pipe.send(row)


def alone(kind: str, name: str, most: int, limit: float) -> Row:
    """A case in a process of its own, which may crash or hang."""
    here, there = multiprocessing.Pipe(duplex=False)
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=report, args=(kind, name, most, there))
    process.start()
    there.close()
    try:
        row = here.recv() if here.poll(limit) else Row(kind, name, said={OURS: "takes too long"})
    except EOFError:
        process.join()
        row = Row(kind, name, said={OURS: f"ends with exit code {process.exitcode}"})
    process.kill()
    process.join()
    return row


# What is told ----------------------------------------------------------------------------------


def told(rows: list[Row]) -> str:
    """Counts by kind, and the faults."""
    lines = []
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind and row.samples]
        counts = Counter()
        for row in own:
            counts["samples"] += row.samples
            counts["sessions"] += row.sessions > 0
            counts[PEER] += not row.said.get(PEER)
            counts[OURS] += not row.said.get(OURS)
            counts["faults"] += row.fault
        lines.append((kind, str(len(own)), *(str(counts[c]) for c in
                      ("samples", PEER, OURS, "sessions", "faults"))))  # fmt: skip
    head = (
        "kind",
        "cases",
        "samples",
        f"pass: {PEER}",
        f"pass: {OURS}",
        "with a session",
        "faults",
    )
    text = markdown(head, lines, right=range(1, 7))
    faults = [(row.kind, row.name, row.said[OURS].replace("|", "/")) for row in rows if row.fault]
    if faults:
        text += "\n\n" + markdown(("kind", "case", "what only ours fails with"), faults)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("file", type=Path, help="rows in JSON, one a line; it goes on with them")
    parser.add_argument("--only", default="", help="regular expression on kind and name")
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth case")
    parser.add_argument("--samples", type=int, default=2, help="samples of each case")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a case")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    torch.set_num_threads(1)
    known: dict[tuple[str, str], Row] = {}
    if given.file.exists():
        read = [Row(**json.loads(line)) for line in given.file.read_text("utf-8").splitlines()]
        known = {(row.kind, row.name): row for row in read}
    check("operator", "add", 1)  # loads what the processes share
    rows = []
    chosen = [key for key in cases() if re.search(given.only, " ".join(key))]
    for kind, name in chosen[:: given.every]:
        row = known.get((kind, name)) or alone(kind, name, given.samples, given.limit)
        rows.append(row)
        if (kind, name) not in known:
            with given.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")
        if row.fault:
            print(row, file=sys.stderr, flush=True)
    print(told(rows))
    faults = sum(row.fault for row in rows)
    if not given.no_write:
        text = f"{QUESTION} `python benchmarks/compile_suite.py`: {len(rows)} cases, with {faults}"
        text += f" faults of ours; {machine()}, torch {torch.__version__}.\n\n{told(rows)}"
        data = {
            "question": QUESTION,
            "results": [asdict(row) for row in rows if any(row.said.values())],
        }
        save("compile_suite", data, text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
