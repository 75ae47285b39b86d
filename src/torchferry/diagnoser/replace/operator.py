"""A custom operator that computes what some calls of a module do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.onnx.utils import register_custom_op_symbolic

from torchferry.converter import lowers
from torchferry.diagnoser.record.tree import Record
from torchferry.diagnoser.record.variant import NUMBERS, Variant
from torchferry.errors import UsageError
from torchferry.values.clone import clone
from torchferry.values.flatten import flatten, unflatten

__all__ = ["DOMAIN", "Operator", "ShapeOf", "compute_results", "make_operator"]

DOMAIN = "diag_lib"
"""The namespace of the operators, in PyTorch and in ONNX."""

ShapeOf = Callable[[Sequence[Any], int], Sequence[Any]]
"""``(leaves of the arguments, number of the output tensor) → its sizes``."""

_TYPES = {bool: "bool", int: "SymInt", float: "float"}
_TAKEN: Counter[str] = Counter()  # operators live as long as the process


@dataclass(frozen=True)
class Operator:
    """One operator, for the calls of one kind.

    Attributes:
        name: in the domain.
        variant: the calls it serves; the first says how outputs are nested.
        compute: the method it stands for.
        shape_of: the shapes of what it returns.
        results: dtype and device of each tensor it returns: the outputs, then what the call
            leaves behind in its arguments.
        registered: the operator as PyTorch knows it; None in a graph that is only to be seen.
    """

    name: str
    variant: Variant
    compute: Callable[..., Any]
    shape_of: ShapeOf
    results: tuple[tuple[torch.dtype, torch.device], ...]
    registered: Callable[..., Any] | None = None

    @property
    def places(self) -> list[int]:
        """The leaves that are arguments of the operator: tensors and numbers."""
        return [place for place, kind in enumerate(self.variant.kinds) if _is_argument(kind)]

    @property
    def example(self) -> list[Any]:
        """The leaves of the arguments of the first call."""
        return [leaf for _, leaf in flatten(self.variant.example)[0]]

    def __call__(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Apply it to the leaves of a call's arguments."""
        places = self.places
        if self.registered is None:
            return self._symbolic(leaves, places)
        made = self.registered(*(leaves[place] for place in places))
        return [made] if isinstance(made, torch.Tensor) else list(made)

    def _symbolic(self, leaves: Sequence[Any], places: Sequence[int]) -> list[torch.Tensor]:
        """A node of a domain of its own, which torch.onnx writes as it stands."""
        tensors = [leaves[place] for place in places if isinstance(leaves[place], torch.Tensor)]
        numbers = {f"x{p}": leaves[p] for p in places if not isinstance(leaves[p], torch.Tensor)}
        for name, value in numbers.items():
            if type(value) not in NUMBERS:
                raise UsageError(
                    f"{self.name}: its argument {name} is a size that varies, which no ONNX "
                    "attribute can hold; pass it as a tensor"
                )
        made = torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{self.name}",
            tensors,
            numbers,
            dtypes=[dtype for dtype, _ in self.results],
            shapes=[self.shape_of(leaves, number) for number in range(len(self.results))],
            version=1,
        )
        return list(made)


def _is_argument(kind: Any) -> bool:
    return kind[0] in ("tensor", "number")


def make_operator(
    name: str,
    variant: Variant,
    compute: Callable[..., Any],
    shape_of: ShapeOf,
    results: Sequence[torch.Tensor],
    *,
    symbolic: bool = False,
) -> Operator:
    """Make an operator, and register it with PyTorch.

    Args:
        name: what it is called; a number is added where that is taken.
        variant: the calls it serves.
        compute: what it runs.
        shape_of: the shapes of its results.
        results: examples of what it returns.
        symbolic: do not register it: torch.onnx will write its name, and nobody run it.

    Raises:
        UsageError: it would return nothing.
    """
    if not results:
        raise UsageError(
            f"{name}: the module returns no tensor and leaves none behind, so no operator can "
            "stand for it"
        )
    kinds = tuple((tensor.dtype, tensor.device) for tensor in results)
    made = Operator(name, variant, compute, shape_of, kinds)
    if symbolic:
        return made
    _TAKEN[name] += 1
    full = name if _TAKEN[name] == 1 else f"{name}_{_TAKEN[name]}"
    registered = _register(full, made)
    # In ONNX it keeps its own name.
    lowers(getattr(getattr(torch.ops, DOMAIN), full).default)(_node_of(name, len(kinds)))
    register_custom_op_symbolic(f"{DOMAIN}::{full}", _traced_node(name, results), 1)
    return replace(made, name=full, registered=registered)


def _register(name: str, operator: Operator) -> Callable[..., Any]:
    """Let PyTorch know the operator: how it is computed, and what it returns."""
    leaves, places = operator.example, operator.places

    def filled(values: Sequence[Any]) -> list[Any]:
        given = list(leaves)
        for place, value in zip(places, values, strict=True):
            given[place] = value
        return given

    def kernel(*values: Any) -> Any:
        return _pack(compute_results(operator, filled(values)))

    def fake(*values: Any) -> Any:
        given = filled(values)
        return _pack([
            torch.empty(tuple(operator.shape_of(given, number)), dtype=dtype, device=device)
            for number, (dtype, device) in enumerate(operator.results)
        ])  # fmt: skip

    schema = _schema(operator.variant, places, len(operator.results))
    made = torch.library.custom_op(f"{DOMAIN}::{name}", kernel, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made


def _node_of(name: str, count: int) -> Callable[..., Any]:
    """How torchferry's converter writes the operator: one node with all it is given."""

    def write(b: Any, *values: Any) -> Any:
        return b.add(name, values, domain=DOMAIN, outputs=count)

    return write


def _traced_node(name: str, results: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """How the older exporter of torch.onnx writes the operator."""
    sizes: list[list[int | None]] = [[None] * one.ndim for one in results]

    def write(graph: Any, *values: Any) -> Any:
        made = graph.op(f"{DOMAIN}::{name}", *values, outputs=len(sizes))
        for value, one, axes in zip(
            [made] if len(sizes) == 1 else made, results, sizes, strict=True
        ):
            value.setType(torch.TensorType.get().with_dtype(one.dtype).with_sizes(axes))
        return made

    return write


def _schema(variant: Variant, places: Sequence[int], count: int) -> str:
    kinds: dict[int, Any] = dict(enumerate(variant.kinds))
    names = {kind.__name__: text for kind, text in _TYPES.items()}
    arguments = [
        f"{'Tensor' if kinds[place][0] == 'tensor' else names[kinds[place][1]]} x{place}"
        for place in places
    ]
    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"({', '.join(arguments)}) -> {results}"


def _pack(results: Sequence[torch.Tensor]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def compute_results(operator: Operator, leaves: Sequence[Any]) -> list[torch.Tensor]:
    """Run the module: every tensor it returns, and every one it leaves behind, as a new one.

    Args:
        operator: what stands for it.
        leaves: of the arguments of a call, as `Operator.example` has them.
    """
    template: Record = operator.variant.calls[0]
    args, kwargs = unflatten(leaves, operator.variant.structure)
    if template.mutation is not None:
        args, kwargs = clone((args, kwargs))  # an operator may not write to what it is given
    outputs = operator.compute(*args, **kwargs)
    found = [leaf for _, leaf in flatten(outputs)[0]]
    if template.mutation is not None:
        after = [leaf for _, leaf in flatten((args, kwargs))[0]]
        pairs = zip(template.mutation.leaves, after, strict=True)
        found += [leaf for (_, changed), leaf in pairs if changed is not None]
    tensors = [leaf for leaf in found if isinstance(leaf, torch.Tensor)]
    # Neither views of its inputs nor of one another, and laid out as the fake ones are.
    return [t.detach().clone(memory_format=torch.contiguous_format) for t in tensors]
