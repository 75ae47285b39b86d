"""What a comparison found: a row a value, the first divergence, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchferry.comparer.explain.histogram import Histogram, finite_of
from torchferry.judge import Kind, Tolerance, Verdict
from torchferry.values.difference import Discrepancy

__all__ = [
    "Apart",
    "Comparison",
    "Row",
    "Side",
    "Stage",
    "Vertex",
    "WeightDifference",
    "side_of",
]

Apart = Callable[[torch.Tensor, torch.Tensor | None], Discrepancy]


@dataclass(frozen=True)
class Side:
    """What can be said of one side's value.

    Attributes:
        shape: of the tensor.
        dtype: its name: ``float32``.
        nans: how many elements are NaN.
        infinities: how many are infinite.
        least: of the finite elements, of their absolute values if they are complex; ``None``
            without any.
        largest: of the same.
        mean: of the same.
    """

    shape: tuple[int, ...]
    dtype: str
    nans: int = 0
    infinities: int = 0
    least: float | None = None
    largest: float | None = None
    mean: float | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def side_of(tensor: torch.Tensor) -> Side:
    """Read a tensor.

    >>> str(side_of(torch.tensor([1.0, float("nan")])))
    'float32[2]'
    """
    floating = tensor.is_floating_point() or tensor.is_complex()
    plain = tensor.float() if tensor.element_size() == 1 and floating else tensor
    return Side(
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        int(plain.isnan().sum()) if floating else 0,
        int(plain.isinf().sum()) if floating else 0,
        *_spread(tensor),
    )


def _spread(tensor: torch.Tensor) -> tuple[float, float, float] | tuple[()]:
    finite = finite_of(tensor)
    if not finite.numel():
        return ()
    ends = torch.aminmax(finite)
    return float(ends.min), float(ends.max), float(finite.mean(dtype=torch.float64))


@dataclass(frozen=True)
class Row:
    """One value on both sides.

    Attributes:
        name: of the ONNX value.
        node: name of the ONNX node that makes it.
        op_type: its operator.
        origin: what it was compared with: an FX node, a module's path, a value of the other model.
        layer: path of the module it stands in.
        line: ``file:line`` of the user's code, or ``""``.
        expected: the reference's value.
        got: the ONNX model's; ``None`` when it could not be computed.
        error: between the two, with what the ONNX model itself computed before; of what is drawn
            at random, or may be in any order, it goes on with the reference's.
        local: between the two, when the ONNX node is given the reference's values; ``None``
            unless that was asked for.
        verdict: by the local error where there is one, else by the global one; ``random`` where
            several values are right: random numbers, places of equal ones; ``incomparable`` where
            a value depends on random numbers that only one side has.
        note: why, where the numbers do not say it.
        histogram: of both sides; by the local value where there is one.

    >>> side = side_of(torch.tensor([1.0, 2.0]))
    >>> row = Row("y", "add", "Add", "x + 1", "", "", side, side, Discrepancy(abs=0.5, scale=2.0))
    >>> row.relative, row.verdict
    (0.25, 'equal')
    """

    name: str
    node: str
    op_type: str
    origin: str
    layer: str
    line: str
    expected: Side
    got: Side | None
    error: Discrepancy
    local: Discrepancy | None = None
    verdict: Kind = "equal"
    note: str = ""
    histogram: Histogram | None = None

    @property
    def said(self) -> Discrepancy:
        """The difference that the verdict is about."""
        return self.error if self.local is None else self.local

    @property
    def relative(self) -> float:
        """That difference as a share of the scale; infinite when nothing can be compared."""
        if self.said.reason is not None and not math.isfinite(self.said.abs):
            return math.inf
        return self.said.abs / max(self.said.scale, Tolerance.inside().least)


@dataclass(frozen=True)
class Vertex:
    """One node of the ONNX graph.

    Attributes:
        node: its name.
        op_type: its operator.
        layer: path of the module it stands in.
        line: ``file:line`` of the user's code, or ``""``.
        values: names of the values that it makes.
        reads: places, in the order of the graph, of the nodes whose values it reads.
    """

    node: str
    op_type: str
    layer: str
    line: str
    values: tuple[str, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """The model's outputs after one step of the way.

    Attributes:
        name: of the step.
        difference: of the output that differs most.
        ok: whether all outputs are within tolerance.
        rule: of an optimization that is wrong where what was optimized is right: the rewrite
            after which the outputs are wrong for the first time, and the nodes that it made.
    """

    name: str
    difference: Discrepancy
    ok: bool
    rule: str = ""


@dataclass(frozen=True)
class WeightDifference:
    """A weight that the ONNX file has otherwise than the model.

    Attributes:
        name: of the parameter, buffer or constant of the model.
        initializer: what the ONNX file calls the weight.
        index: of the largest difference, in the model's tensor.
        expected: the model's number there.
        got: the file's.
        abs: the largest difference; infinite if only one side is NaN there.
        wrong: how many elements differ by more than rounding.
        size: of how many.
        node: name of the ONNX node that reads the weight.
    """

    name: str
    initializer: str
    index: tuple[int, ...]
    expected: float
    got: float
    abs: float
    wrong: int
    size: int
    node: str

    def __str__(self) -> str:
        """One sentence."""
        digits = 3
        while digits < 9 and f"{self.expected:.{digits}g}" == f"{self.got:.{digits}g}":
            digits += 1
        at = f" at {list(self.index)}" if self.index else ""
        stored = "" if self.initializer == self.name else f" (initializer {self.initializer})"
        return (
            f"weight {self.name}{stored} differs{at}: {self.expected:.{digits}g} in the model, "
            f"{self.got:.{digits}g} in the ONNX file (max abs {self.abs:.3g}, in {self.wrong} of "
            f"{self.size} elements)"
        )


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two models side by side: what `compare` gives.

    >>> import torchferry as tf
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    >>> x = torch.ones(4, 3)
    >>> program = tf.to_onnx(model, (x,), dynamic_shapes=({0: "batch"},))
    >>> comparison = tf.compare(model, program, (x,), progress=False)
    >>> comparison.ok, comparison.first, comparison.differing
    (True, None, ())
    >>> [(row.op_type, row.origin, str(row.expected), row.verdict) for row in comparison.rows]
    [('Gemm', 'linear', 'float32[4, 2]', 'equal'), ('Relu', 'relu', 'float32[4, 2]', 'equal')]

    Attributes:
        rows: every aligned value, in the order of the ONNX graph.
        outputs: the model's outputs as onnxruntime computes them with all its optimizations, by
            name.
        differing: names of the outputs beyond tolerance.
        open: names of the outputs that cannot be compared, as they depend on random numbers that
            only one side has, or have no counterpart.
        nodes: nodes of the ONNX graph.
        unaligned: values of the ONNX graph that stand for nothing in the reference.
        first: the first divergence; ``None`` when all is within tolerance.
        suspects: names of the ONNX nodes between the first divergence and the values that agree.
        notes: what explains a difference: eager's own, the capture's, a failure of onnxruntime.
        stages: the way from the reference to the ONNX model, when that was asked for.
        cut: the file that shows the first divergence alone.
        tolerance: of values of the model's dtype.
        captured: whether the captured program computes what the module does in eager mode.
        graph: the nodes of the ONNX graph in order, for a picture of it.
        place: which set of inputs this is about, from 1: of several, the worst.
        verdict: on the ONNX model as a whole, in the words that all commands use.
        weights: those that differ, which is the first divergence, whatever values do.
        left_out: how many sets of inputs the ONNX model does not take.
    """

    rows: tuple[Row, ...]
    outputs: Mapping[str, Discrepancy]
    differing: tuple[str, ...]
    nodes: int
    unaligned: int
    first: Row | None = None
    suspects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    cut: Path | None = None
    tolerance: Tolerance = field(default_factory=Tolerance.inside)
    captured: bool = True
    graph: tuple[Vertex, ...] = ()
    open: tuple[str, ...] = ()
    place: int = 1
    verdict: Verdict = field(default_factory=lambda: Verdict("equal"))
    weights: tuple[WeightDifference, ...] = ()
    left_out: int = 0

    @property
    def ok(self) -> bool:
        """Whether all outputs were compared, nothing differs, and the capture is right."""
        agree = not self.differing and not self.weights and self.first is None
        return self.captured and agree and not self.open

    def __repr__(self) -> str:
        """How much was compared, and what differs first; the rows are many."""
        first = "" if self.first is None else f", first={self.first.name!r}"
        wrong = f", weights={len(self.weights)}" if self.weights else ""
        return f"Comparison(ok={self.ok}, rows={len(self.rows)}{wrong}{first})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))  # what IPython shows

    def __str__(self) -> str:
        """The verdict and the first divergence, in a few lines."""
        shown = [str(weight) for weight in self.weights[:3]]
        if len(self.weights) > 3:
            shown.append(f"and {len(self.weights) - 3} more weights differ")
        return "\n".join([*shown, self._values_text()])

    def _values_text(self) -> str:
        if self.first is None:
            parts = [f"{sum(row.verdict == 'equal' for row in self.rows)} values agree"]
            for verdict, told in (
                ("random", "are random"),
                ("incomparable", "cannot be compared"),
            ):
                some = sum(row.verdict == verdict for row in self.rows)
                parts += [f"{some} {told}"] if some else []
            text = ", ".join([*parts, f"{self.unaligned} have no counterpart"])
            text += f"; but outputs differ: {', '.join(self.differing)}" if self.differing else ""
            return text + (f"; not compared: {', '.join(self.open)}" if self.open else "")
        row, said = self.first, self.first.said
        where = f" in {row.layer}" if row.layer else ""
        kind = "" if row.local is None else " by itself"
        lines = [f"first divergence: {row.op_type} {row.node} → {row.name}{where}"]
        if math.isfinite(said.abs):
            lines.append(f"  differs{kind} by {said.abs:.3g} (scale {said.scale:.3g})")
        lines += [f"  {text}" for text in (said.reason, row.note) if text]
        lines += [f"  stands for {row.origin}" + (f" at {row.line}" if row.line else "")]
        if self.suspects not in {(), (row.node,)}:
            more = f" and {len(self.suspects) - 8} more" if len(self.suspects) > 8 else ""
            lines.append(f"  at fault is one of: {', '.join(self.suspects[:8])}{more}")
        return "\n".join(lines)
