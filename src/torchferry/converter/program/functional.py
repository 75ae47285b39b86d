"""Programs in the form the driver walks: nothing is written in place, every operator is known.

torch.export leaves in-place operators and composite ones as the user's code calls them. Only a
program that writes in place is traced again, and only operators that have no lowering are
decomposed, with torch's own decompositions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind

from torchferry.converter.program.aliasing import aliasing_targets, graphs_of, said
from torchferry.converter.program.in_place import is_seen_write, updates_statistics
from torchferry.converter.program.subclass import has_whole_weights, name_parts
from torchferry.converter.program.written_view import find_written_views
from torchferry.converter.torchlib import borrowed
from torchferry.errors import ConversionError
from torchferry.observer.guards import note_guards
from torchferry.seams.pytorch import (
    OpOverload,
    SpecViolationError,
    decomposition_table,
    guards_of,
    is_vmap_mark,
    pytree,
    set_guards,
)
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.oblivious import sizes_oblivious
from torchferry.values.randomness import random_kept
from torchferry.values.recurrent import keep_recurrent_whole

__all__ = ["decomposition", "functional"]

_ROUNDS = 3  # a decomposition may use what has to be decomposed again
_TORCHS = (
    AssertionError, AttributeError, LookupError, RuntimeError, SpecViolationError, TypeError,
    ValueError,
)  # fmt: skip


def functional(program: ExportedProgram, known: Callable[[Any], bool]) -> ExportedProgram:
    """The program without in-place writes, its unknown operators decomposed where torch can.

    Args:
        program: left as it is.
        known: whether an operator can be converted as it stands.
    """
    first = True
    for _ in range(_ROUNDS):
        table = _table(program, known)
        writes = first and _writes_in_place(program)
        if not table and not (writes or (first and _transformed(program))):
            break
        first = False
        with said(program):
            hidden = {*aliasing_targets(program), *_trained(program)} if writes else ()
            table |= {target: how for target in hidden if (how := decomposition(target))}
            # Torch copies what it cannot tell to be a view, unless it may ask for the sizes.
            views = writes and any(one.views for one in find_written_views(program))
            traced = _traced(program, table, asks=views)
            if views:
                _check_writes(program, traced)
        program = traced
    return program


def _traced(
    program: ExportedProgram, table: dict[Any, Any], *, asks: bool = False
) -> ExportedProgram:
    with (
        _flat(program),
        note_guards(program),
        sizes_oblivious(not asks),
        keep_recurrent_whole(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            traced: ExportedProgram = program.run_decompositions(table)
        except _TORCHS as error:
            first = (str(error).strip().splitlines() or [""])[0][:300]
            raise ConversionError(
                "torch cannot trace the program again, which makes its writes in place, or "
                f"operators without a lowering, functional: {type(error).__name__}: {first}"
            ) from error
    return name_parts(traced, {**program.state_dict, **program.constants})


def _check_writes(program: ExportedProgram, traced: ExportedProgram) -> None:
    """Refuse a program whose writes torch has lost: it took a view for a copy all the same.

    Raises:
        ConversionError: the two compute something else of the exported inputs.
    """
    if program.example_inputs is None:
        return
    flat = tuple(pytree.tree_leaves(program.example_inputs))
    results = []
    for one, (args, kwargs) in ((program, program.example_inputs), (traced, (flat, {}))):
        module = one.module(check_guards=False)
        with torch.no_grad(), random_kept(), buffers_kept(module):
            leaves = pytree.tree_leaves(module(*clone(args), **clone(kwargs)))
        results.append([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    if max_diff(*results).abs > 0:
        raise ConversionError(
            "torch cannot make a write in place functional, as its target is a view only at some "
            "sizes: write to the tensor itself, by index, or to what view() gives"
        )


def decomposition(target: Any) -> Callable[..., Any] | None:
    """How torch makes an operator of simpler ones; ``None`` when it cannot."""
    return _decompositions().get(target)


def _calls(program: ExportedProgram) -> set[Any]:
    return {
        node.target
        for graph in graphs_of(program)
        for node in graph.nodes
        if node.op == "call_function" and isinstance(node.target, OpOverload)
    }


def _table(program: ExportedProgram, known: Callable[[Any], bool]) -> dict[Any, Any]:
    """What is to be decomposed, and how; empty when every operator is known.

    It covers what decompositions are made of, so that one trace is enough.
    """
    if all(known(target) or decomposition(target) is None for target in _calls(program)):
        return {}
    return {target: how for target, how in _decompositions().items() if not known(target)}


def _trained(program: ExportedProgram) -> Iterator[Any]:
    """Normalizations that update statistics: those they are made of say so."""
    for graph in graphs_of(program):
        yield from (node.target for node in graph.nodes if updates_statistics(node))


def _writes_in_place(program: ExportedProgram) -> bool:
    """Whether there is a write that somebody may see."""
    return any(is_seen_write(node) for graph in graphs_of(program) for node in graph.nodes)


def _transformed(program: ExportedProgram) -> bool:
    """Whether tracing changes what nothing else would: blocks under vmap or autocast, weights."""
    return has_whole_weights(program) or any(
        is_vmap_mark(node.target)
        or (node.target is torch.ops.higher_order.wrap_with_autocast and node.args[2])
        for graph in graphs_of(program)
        for node in graph.nodes
    )


_known: dict[Any, Callable[..., Any]] = {}


def _decompositions() -> dict[Any, Callable[..., Any]]:
    if not _known:
        table = decomposition_table()
        _known.update((t, how) for t, how in table.items() if not borrowed(t))
        defaults: Any = torch.export.default_decompositions()
        _known.update(defaults.items())
    return _known


@contextmanager
def _flat(program: ExportedProgram) -> Iterator[None]:
    """Leave nesting, None and numbers out of the program inside the block: the signature has them.

    Caches that transformers itself registered with pytrees compute when they are put together,
    which would end up in the graph that is traced, and fail there ("Constant tensor
    lifted_tensor_0 is not in the constants dictionary").
    """
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    root = program.module_call_graph[0].signature
    call = root.in_spec, root.out_spec, root.forward_arg_names
    before = output.args, list(specs), program.example_inputs
    guards = guards_of(program)
    kept = [not isinstance(spec.arg, ConstantArgument) for spec in specs]
    inputs = tuple(pytree.tree_leaves(program.example_inputs))
    output.args = (tuple(a for a, keep in zip(before[0][0], kept, strict=True) if keep),)
    specs[:] = [spec for spec, keep in zip(before[1], kept, strict=True) if keep]
    root.in_spec = pytree.tree_structure((inputs, {}))
    returned = [s.kind is OutputKind.USER_OUTPUT for s in specs]  # writes to inputs are not
    root.out_spec = pytree.tree_structure([0] * sum(returned))
    root.forward_arg_names = None
    program.example_inputs = (inputs, {})
    set_guards(program, [])  # they speak of the nested arguments
    try:
        yield
    finally:
        root.in_spec, root.out_spec, root.forward_arg_names = call
        output.args, specs[:], program.example_inputs = before
        set_guards(program, guards)
