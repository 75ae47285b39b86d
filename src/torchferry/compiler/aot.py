"""The graph that dynamo captured as functional ATen graphs, through AOTAutograd."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchferry.converter import torchlib
from torchferry.converter.coverage import is_ours
from torchferry.converter.lowering import registered
from torchferry.converter.program.randomness import may_be_random
from torchferry.seams.dynamo import (
    OutputType,
    aot_autograd,
    is_preservable,
    is_wrapper_subclass,
    keep_composites,
)
from torchferry.seams.pytorch import OpOverload, any_autocast, decomposition_table
from torchferry.seams.tracing import aot_metadata

__all__ = [
    "Compile",
    "inside_aot",
    "is_known",
    "is_plain",
    "static_inputs",
    "trace",
    "trains",
]

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]


def is_known(target: Any) -> bool:
    """Whether the converter can write an operator."""
    return is_ours(target) or torchlib.borrowed(target)


def trains(args: Sequence[Any]) -> bool:
    """Whether AOTAutograd will make a backward graph for these arguments."""
    return torch.is_grad_enabled() and any(
        isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args
    )


def inside_aot() -> bool:
    """Whether AOTAutograd is running: the graph at hand is one that it made."""
    return aot_metadata() is not None


def static_inputs() -> tuple[int, ...]:
    """Parameters and buffers among the arguments of the inference graph, by position.

    What the graph writes to is left out. To be called while AOTAutograd runs.
    """
    metadata = aot_metadata()
    if metadata is None:
        return ()
    written = {i for i, info in enumerate(metadata.input_info) if info.mutates_data}
    return tuple(i for i in metadata.static_input_indices if i not in written)


def is_plain(graph: fx.GraphModule, args: Sequence[Any]) -> bool:
    """Whether an inference graph may be called as the captured one is.

    It may when AOTAutograd has nothing to do around it: nothing is written to, no result is a view
    of an argument or of another result, sizes are fixed, and there is no autocast to be switched
    off. To be called while AOTAutograd runs.
    """
    metadata = aot_metadata()
    return (
        metadata is not None
        and len(graph.graph.find_nodes(op="placeholder")) == len(args)
        and not any(map(is_wrapper_subclass, args))
        and not any_autocast()
        and not metadata.tokens
        and not metadata.is_rng_op_functionalized
        and not metadata.num_intermediate_bases
        and all(not (i.mutates_data or i.mutates_metadata) for i in metadata.input_info)
        and all(o.output_type is OutputType.non_alias for o in metadata.output_info)
        # It marks these sizes of the results, so that dynamo does not compile for each of them.
        and not any(o.dynamic_dims for o in metadata.output_info)
    )


def trace(
    module: fx.GraphModule, args: Sequence[Any], *, inference: Compile, training: Compile
) -> Callable[..., Any]:
    """Make functional graphs of a captured one, and have them compiled.

    Without gradients composite operators stay whole (``linear``, ``layer_norm``,
    ``scaled_dot_product_attention``) where there is a lowering for them; with gradients PyTorch's
    own formulas need their parts.

    Args:
        module: what dynamo captured.
        args: what it is called with.
        inference: compiles the graph when nothing asks for gradients.
        training: compiles the forward graph, and the backward graph, when something does.

    Raises:
        RuntimeError: AOTAutograd cannot trace the module.
    """
    writes: list[bool] = []

    def watched(compile_graph: Compile) -> Compile:
        def noting(graph: fx.GraphModule, example: Sequence[Any]) -> Callable[[list[Any]], Any]:
            metadata = aot_metadata()
            inputs = [] if metadata is None else metadata.input_info
            writes.append(any(info.mutates_data for info in inputs))
            return compile_graph(graph, example)

        return noting

    backend = aot_autograd(
        fw_compiler=watched(training),
        bw_compiler=training,
        inference_compiler=watched(inference),
        decompositions=_decompositions(),
    )
    with _attention_in_parts() if trains(args) else _whole():
        compiled: Callable[..., Any] = backend(module, args)
    return _unless_shared(compiled, module) if any(writes) else compiled


def _unless_shared(compiled: Callable[..., Any], module: fx.GraphModule) -> Callable[..., Any]:
    """A compiled graph that writes to arguments; in PyTorch where arguments share memory.

    With dynamic sizes torch keeps no guard of that, and the graph was made of others.
    """

    def call(*args: Any) -> Any:
        return module(*args) if _share_memory(args) else compiled(*args)

    return call


def _share_memory(args: Sequence[Any]) -> bool:
    """Whether two tensors have an element in common, or lie between each other's."""
    tensors = [one for one in args if isinstance(one, torch.Tensor)
               and one.layout is torch.strided and one.numel()]  # fmt: skip
    spans = sorted(
        (one.data_ptr(), one.data_ptr() + one.element_size() * (1 + sum(
            (count - 1) * stride for count, stride in zip(one.shape, one.stride(), strict=True)
        )))
        for one in tensors
    )  # fmt: skip
    return any(end > start for (_, end), (start, _) in itertools.pairwise(spans))


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """How torch makes what we cannot write of what we can.

    Random operators stay as they are: they run in PyTorch, with its random numbers.
    """
    table = dict(decomposition_table())
    defaults: Any = torch.export.default_decompositions()
    table.update(defaults.items())
    return {
        target: how
        for target, how in table.items()
        if not may_be_random(target) and not is_ours(target)
    }


@contextmanager
def _whole() -> Iterator[None]:
    def keep(*_: Any, **__: Any) -> Any:
        return NotImplemented

    whole = {
        target: keep
        for target in registered()
        if isinstance(target, OpOverload)
        and is_preservable(target)
        # AOTAutograd keeps a Python float, of 64 bits, as an input only where it sees the parts.
        and target is not torch.ops.aten.item.default
    }
    with keep_composites(whole):
        yield


@contextmanager
def _attention_in_parts() -> Iterator[None]:
    # The backward of a fused attention kernel has neither a lowering nor a decomposition.
    with sdpa_kernel(SDPBackend.MATH):
        yield
