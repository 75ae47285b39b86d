"""torch.nn.attention.flex_attention: attention whose scores a function of the user's changes.

The function is written for one score and the four numbers that say where it stands. It is traced
again for all of them at once, with torch.vmap, as eager runs it. A block mask counts by its
``mask_mod`` alone: which blocks are empty only saves a kernel time.
Source: torch/_higher_order_ops/flex_attention.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.attention import scaled_dot_product_attention
from torchferry.converter.write.control_flow import inlined
from torchferry.converter.write.kernel import single
from torchferry.converter.write.promote import torch_dtype
from torchferry.seams.operators import aten
from torchferry.seams.operators import higher_order as hop
from torchferry.seams.pytorch import FakeTensor, FakeTensorMode

__all__: list[str] = []

Values = Sequence[ir.Value]
Body = Any  # torchferry.converter.driver.Body: the driver imports what imports this

_INFINITY = float("inf")
_LOG_2 = log(2)  # the kernels count in powers of two


@lowers(hop.flex_attention)
def flex_attention(
    b: Block,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    score_mod: Body,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Values = (),
    mask_mod_other_buffers: Values = (),
) -> tuple[ir.Value, ir.Value, ir.Value]:
    mask_mod = block_mask[-1].body()
    scores = _scores(b, query, key, scale)
    sizes = _sizes(query, key)
    changed = _everywhere(b, score_mod, sizes, (scores,), score_mod_other_buffers)
    mask = None
    if not _is_always(mask_mod):
        mask = _everywhere(b, mask_mod, sizes, (), mask_mod_other_buffers)
    # with no score changed it is attention as any other; what is not used of the two goes away
    plain = changed is scores
    if mask is not None:
        changed = b.Where(mask, changed, -_INFINITY)
    most = b.ReduceMax(changed, [-1], keepdims=1)
    seeing = b.Greater(most, -_INFINITY)
    if plain:
        result = scaled_dot_product_attention(
            b, query, key, value, mask, scale=scale, enable_gqa=True
        )
    else:
        weights = b.Where(seeing, b.Softmax(changed, axis=-1), 0.0)
        result = _products(b, b.cast(weights, value), value)
    total = b.ReduceSum(b.Exp(b.Sub(changed, most)), [-1], keepdims=1)
    logarithm = b.Where(seeing, b.Add(b.Log(total), most), -_INFINITY)
    return result, *(b.Div(b.Squeeze(v, [-1]), _LOG_2) for v in (logarithm, most))


@lowers(hop.flat_apply)
def flat_apply(b: Block, func_spec: Any, in_spec: Any, *args: Any) -> Any:
    raise ValueError(
        "it calls a Python function that torch.export kept as one, which only flex_attention's "
        "functions may do: write it with operators of torch"
    )


# Products in the dtype of the scores, heads grouped where there are fewer keys -------------------


def _scores(b: Block, query: ir.Value, key: ir.Value, scale: float) -> ir.Value:
    query, key = single(b, query), single(b, key)
    turned = b.Transpose(key, perm=[0, 1, 3, 2])
    return b.Mul(_products(b, query, turned), scale)


def _products(b: Block, x: ir.Value, y: ir.Value) -> ir.Value:
    """``x @ y``; a head of ``y`` serves as many of ``x`` as there are more of them."""
    many, few = b.dim(x, 1), b.dim(y, 1)
    if few in (many, 1):
        return b.MatMul(x, y)
    if not isinstance(many, int) or not isinstance(few, int):
        raise ValueError("its number of heads depends on the inputs' sizes, fix it")
    # a zero keeps the size of the axis
    grouped = b.MatMul(b.Reshape(x, [0, few, -1, 0]), y)
    return b.Reshape(grouped, [0, many, -1, 0])


# The user's functions, for all places at once ----------------------------------------------------


def _sizes(query: ir.Value, key: ir.Value) -> list[Any]:
    """Batch, heads, queries and keys, as torch knows them."""
    examples = query.meta["example"], key.meta["example"]
    return [*examples[0].shape[:3], examples[1].shape[2]]


def _is_always(mask_mod: Body) -> bool:
    """Whether a mask lets everything through, as the one that stands for none does."""
    returned = mask_mod.module.graph.output_node().args[0]
    made = returned[0] if isinstance(returned, (list, tuple)) else returned
    return isinstance(made, fx.Node) and made.target is aten.new_ones.default


def _everywhere(
    b: Block, body: Body, sizes: Sequence[Any], first: Values, buffers: Values
) -> ir.Value:
    """What a function makes of every place, ``[batch, heads, queries, keys]``.

    Args:
        b: where it is written.
        body: the function, of ``first``, four int64 places and ``buffers``.
        sizes: of the four axes, as torch knows them.
        first: the scores, or nothing.
        buffers: other tensors that the function reads as a whole.

    Returns:
        One value; without ``first``, axes that the function does not look at have size 1.
    """
    nodes = body.placeholders
    places = nodes[len(first) : len(first) + 4]
    if not first:
        sizes = [size if node.users else 1 for size, node in zip(sizes, places, strict=True)]
    examples = [
        _example(value, node)
        for value, node in zip(buffers, nodes[len(nodes) - len(buffers) :], strict=True)
    ]
    traced = _traced(body.module, sizes, bool(first), examples)
    (made,) = inlined(b, type(body)(traced, body.sizes), [*first, *buffers])
    result: ir.Value = made
    return result


def _example(value: Any, node: fx.Node) -> Any:
    """What a buffer looks like: as torch knows it, or (a weight) the shape it has."""
    if not isinstance(value, ir.Value):
        return value
    if (known := value.meta.get("example", node.meta.get("val"))) is not None:
        return known
    return tuple((value.shape or ir.Shape([])).numpy()), torch_dtype(value.dtype)


def _traced(
    function: Callable[..., Any], sizes: Sequence[Any], scored: bool, examples: Sequence[Any]
) -> fx.GraphModule:
    """The graph of a function of one place under vmap over all of them."""
    from torchferry.seams.symbols import new_shape_env, trace_fake, vmap_indexing

    env = next((s.node.shape_env for s in sizes if isinstance(s, torch.SymInt)), None)
    mode = next((e.fake_mode for e in examples if isinstance(e, FakeTensor)), None)
    over: Callable[..., Any] = function
    for axis in reversed(range(4)):
        places = [0 if place == axis else None for place in range(4)]
        over = torch.vmap(over, in_dims=(*[0] * scored, *places, *[None] * len(examples)))

    def everywhere(*given: torch.Tensor) -> Any:
        grid = [torch.arange(size) for size in sizes]
        with vmap_indexing():
            return over(*given[:scored], *grid, *given[scored:])

    with mode or FakeTensorMode(shape_env=env or new_shape_env()):
        given = [torch.empty(tuple(sizes))] * scored
        given += [torch.empty(e[0], dtype=e[1]) if isinstance(e, tuple) else e for e in examples]
        return trace_fake(everywhere, tracing_mode="symbolic")(*given)
