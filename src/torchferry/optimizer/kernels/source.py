"""The C of a kernel, and of a library of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer import facts
from torchferry.optimizer.kernels.expression import (
    C_TYPES,
    dtype_of,
    element,
    literal,
    operands,
)
from torchferry.optimizer.kernels.runs import MOST_AXES, Run

__all__ = ["DOMAIN", "Kernel", "kernel_of", "library_source"]

DOMAIN = "torchferry.kernels"
"""The domain of the operators that are such kernels."""

_BODY = """
static void {name}_body(const char *const *in, char *out, size_t count) {{
{loads}
  {output} *z = ({output} *)out;
#pragma GCC ivdep
  for (size_t i = 0; i < count; i++) {{
{steps}
  }}
}}
static size_t {name}_pairs(int **in, int **out);
static Kernel {name} = {{
    .called = "{name}", .inputs = {inputs}, .cost = {cost}, .body = {name}_body,
    .types = (const unsigned char[]){{{types}}}, .vector = (const unsigned char[]){{{vector}}}}};
static size_t {name}_pairs(int **in, int **out) {{
  return pairs({name}.types, {name}.inputs, in, out);
}}
"""

_REGISTER = """
__attribute__((visibility("default"))) Status *RegisterCustomOps(void *options,
                                                                 const ApiBase *base) {{
  const Api *api = base->get(VERSION);
  if (!api) return NULL; /* an older onnxruntime: it will say that it has no such operator */
{described}
  Op *ops[] = {{{ops}}};
  return add_all(options, api, "{domain}", ops, {count});
}}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel in C.

    Attributes:
        name: of the operator; equal runs have one name.
        text: the C of it.
    """

    name: str
    text: str


def kernel_of(run: Run) -> Kernel:
    """Write the kernel of a run.

    Raises:
        Declined: an operator has no expression.
    """
    names: dict[ir.Value, str] = {}
    steps, cost = [], 1.0
    vector = _vector(run)
    loads = []
    for i, value in enumerate(run.inputs):
        kind = C_TYPES[dtype_of(value)]
        loads.append(f"  const {kind} *a{i} = (const {kind} *)in[{i}];")
        names[value] = f"x{i}"
        if vector[i]:
            steps.append(f"    const {kind} x{i} = a{i}[i];")
        else:
            loads.append(f"  const {kind} x{i} = *a{i};")
    for number, node in enumerate(run.nodes):
        given = [names.get(value) or _number(value) for value in operands(node)]
        made = element(node, given)
        kind = C_TYPES[dtype_of(node.outputs[0])]
        steps.append(f"    const {kind} t{number} = {made.text};")
        names[node.outputs[0]] = f"t{number}"
        cost += made.cost
    steps.append(f"    z[i] = {names[run.output]};")
    types = [dtype_of(value).value for value in (*run.inputs, run.output)]
    fields = {
        "loads": "\n".join(loads), "steps": "\n".join(steps), "inputs": len(run.inputs),
        "output": C_TYPES[dtype_of(run.output)], "cost": cost,
        "types": ", ".join(map(str, types)), "vector": ", ".join(map(str, map(int, vector))),
    }  # fmt: skip
    said = hashlib.sha256(_BODY.format(name="", **fields).encode()).hexdigest()[:12]
    spelled = "".join(node.op_type for node in run.nodes[:4])
    name = f"{spelled}{'Etc' if len(run.nodes) > 4 else ''}_{said}"
    return Kernel(name, _BODY.format(name=name, **fields))


def library_source(kernels: Iterable[Kernel]) -> str:
    """The C of a library that onnxruntime can load; the same for the same kernels."""
    ordered = sorted({kernel.name: kernel for kernel in kernels}.items())
    head = resources.files(__package__).joinpath("elementwise.h").read_text("utf-8")
    register = _REGISTER.format(
        described="\n".join(f"  {name}.op = described({name}_pairs);" for name, _ in ordered),
        ops=", ".join(f"&{name}.op" for name, _ in ordered),
        domain=DOMAIN,
        count=len(ordered),
    )
    return "\n".join([head, *(kernel.text for _, kernel in ordered), register])


def _number(value: ir.Value) -> str:
    return literal(facts.number(value), dtype_of(value))


def _vector(run: Run) -> list[bool]:
    """Whether an input has an element for each step along the innermost axis, as far as is known.

    Axes that all inputs go through alike count as one. This is what the kernel is written for;
    what turns out otherwise is put right as it runs.
    """
    sizes = [_padded(facts.shape(value)) for value in run.inputs]
    out = _padded(facts.shape(run.output))
    steps: list[Size] = [1] * len(sizes)
    inner: list[Size] = []
    extent: Size = 1
    for axis in range(MOST_AXES):
        here: list[Size] = [0 if dims[axis] == 1 else step for dims, step in zip(sizes, steps,
                            strict=True)]  # fmt: skip
        steps = [step * dims[axis] for dims, step in zip(sizes, steps, strict=True)]
        if out[axis] == 1:
            continue
        if inner and here != [step * extent for step in inner]:
            break
        inner = inner or here
        extent = extent * out[axis]
    return [step != 0 for step in inner] if inner else [True] * len(sizes)


def _padded(shape: Sequence[Size]) -> list[Size]:
    """The sizes from the right, with ones for axes that are not there."""
    return [*reversed(shape), *[1] * (MOST_AXES - len(shape))]
