"""genai's fast graph: attention that writes into one buffer of keys and values.

With ``past_present_share_buffer`` the cache is as long as the context from the beginning, and
GroupQueryAttention of com.microsoft writes new keys and values where the sequence ends, turning
them by a table of angles as it goes; no step copies the cache. Its inputs:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from torchferry.runner import open_session

__all__ = ["group_attention"]

_MICROSOFT = "com.microsoft"
_STEP = 16
_FLAT = {"qk_matmul_output_mode", "softmax_precision", "q_num_heads", "kv_num_heads", "scale",
         "is_causal", "softcap"}  # fmt: skip
Array = np.ndarray


@dataclass(frozen=True)
class _Site:
    """One layer's attention, and what it reads before the rotation."""

    node: ir.Node
    query: ir.Value
    key: ir.Value
    angles: tuple[ir.Value, ir.Value] | None
    interleaved: int


def group_attention(model: ir.Model, context: int) -> str:
    """Give a decoder one buffer of keys and values, in place.

    Args:
        model: a decoder as torchferry writes it for onnxruntime.
        context: tokens that it can take.

    Returns: why the graph stays as it is; nothing if it was changed.
    """
    graph = model.graph
    nodes = [node for node in graph if node.op_type == "Attention" and not node.domain]
    sites = [site for node in nodes if (site := _read_site(node)) is not None]
    inputs = {str(value.name): value for value in graph.inputs}
    if not nodes or len(sites) < len(nodes) or "attention_mask" not in inputs:
        return "its attention is in another form"
    if len({site.node.inputs[3] for site in sites}) > 1 or len({s.angles for s in sites}) > 1:
        return "its layers have masks or angles of their own"
    mask, angles = sites[0].node.inputs[3], sites[0].angles
    if mask is None or not _is_plain_mask(model, mask, context):
        return "its mask is not that of all earlier tokens"
    table = None if angles is None else _read_table(model, angles, context)
    if angles is not None and table is None:
        return "its angles depend on more than positions"
    if table is not None and 2 * table[0].shape[1] % _STEP:
        return f"its heads are no multiple of {_STEP} numbers, as the kernel wants them"
    lengths = _count_tokens(graph, inputs["attention_mask"])
    caches = [] if table is None else _store_table(graph, table)
    for site in sites:
        _replace(graph, site, [*lengths, *caches])
    model.opset_imports[_MICROSOFT] = 1
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [value for value in graph.inputs if list(value.consumers())]
    for value in graph.outputs:
        if value.name != "logits" and value.shape is not None:
            value.shape = ir.Shape([value.shape[0], value.shape[1], "buffer", value.shape[3]])
    return ""


def _read_site(node: ir.Node) -> _Site | None:
    """A layer with flat queries, a cache and, if any, rotated queries and keys; else nothing."""
    query, key = node.inputs[0], node.inputs[1]
    plain = {*node.attributes} <= _FLAT and "q_num_heads" in node.attributes
    if not plain or len(node.inputs) != 6 or query is None or key is None:
        return None
    if node.attributes.get_int("is_causal", 0) or len(node.outputs) > 3:
        return None
    turns = [value.producer() for value in (query, key)]
    turned = [turn for turn in turns if turn is not None and turn.op_type == "RotaryEmbedding"]
    if not turned:
        return _Site(node, query, key, None, 0)
    known = {"num_heads", "interleaved", "rotary_embedding_dim"}
    first = turned[0]
    for turn in turned:
        attributes = turn.attributes
        if turn.domain or len(turn.inputs) != 3 or not {*attributes} <= known:
            return None
        if attributes.get_int("rotary_embedding_dim", 0) or not attributes.get_int("num_heads", 0):
            return None
    interleaved = {turn.attributes.get_int("interleaved", 0) for turn in turned}
    if len(turned) != 2 or turned[0].inputs[1:] != turned[1].inputs[1:] or len(interleaved) > 1:
        return None
    cosine, sine = first.inputs[1], first.inputs[2]
    before = [turn.inputs[0] for turn in turned]
    if cosine is None or sine is None or before[0] is None or before[1] is None:
        return None
    return _Site(node, before[0], before[1], (cosine, sine), interleaved.pop())


def _compute(
    model: ir.Model, values: list[ir.Value], feeds: dict[str, Array]
) -> list[Array] | None:
    """What some values are for inputs; nothing if they depend on other inputs."""
    inputs = list(model.graph.inputs)
    part = ir.convenience.extract(model.graph, inputs, values)
    read = {str(value.name) for value in part.inputs if list(value.consumers())}
    if not read <= feeds.keys():
        return None
    part.inputs[:] = [value for value in part.inputs if value.name in read]
    piece = ir.Model(part, ir_version=model.ir_version)
    piece.opset_imports.update(model.opset_imports)
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
        path = Path(folder) / "part.onnx"
        ir.save(piece, path)
        session = open_session(path)
        names = [value.name for value in session.get_outputs()]
        results: list[Array] = session.run(names, {name: feeds[name] for name in read})
    return results


def _is_plain_mask(model: ir.Model, mask: ir.Value, context: int) -> bool:
    """Whether a mask leaves out later tokens and padding alone, at the full context too."""
    caches = [v for v in model.graph.inputs if str(v.name).startswith("past_key_values")]
    shape, kind = caches[0].shape, caches[0].dtype
    if shape is None or kind is None:  # torchferry writes both
        return False
    heads, size = (int(str(shape[axis])) for axis in (1, 3))
    for batch, past, new, padded in ((2, 0, 7, 2), (3, 5, 4, 1), (1, context - 3, 3, 0)):
        total = past + new
        known = np.ones((batch, total), np.int64)
        known[0, total - padded :] = 0
        held = np.zeros((batch, heads, past, size), kind.numpy())
        feeds = {
            "input_ids": np.zeros((batch, new), np.int64), "attention_mask": known,
            "position_ids": np.arange(past, total)[None].repeat(batch, 0),
            **{str(value.name): held for value in caches},
        }  # fmt: skip
        results = _compute(model, [mask], feeds)
        if results is None:
            return False
        (got,) = results
        allowed = got if got.dtype == np.bool_ else got == 0
        earlier = np.arange(total)[None, :] <= np.arange(past, total)[:, None]
        wanted = earlier[None, None] & (known[:, None, None, :] > 0)
        if not np.array_equal(np.broadcast_to(allowed, wanted.shape), wanted):
            return False
    return True


def _read_table(
    model: ir.Model, angles: tuple[ir.Value, ir.Value], context: int
) -> list[Array] | None:
    """Cosines and sines of all positions, (context, half of the rotated size)."""
    results = _compute(model, [*angles], {"position_ids": np.arange(context)[None]})
    return results and [values.reshape(context, -1) for values in results]


def _store_table(graph: ir.Graph, table: list[Array]) -> list[ir.Value]:
    values = []
    for name, content in zip(("buffer/cosines", "buffer/sines"), table, strict=True):
        value = ir.Value(name=name, const_value=ir.tensor(content, name=name))
        graph.register_initializer(value)
        values.append(value)
    return values


def _count_tokens(graph: ir.Graph, mask: ir.Value) -> list[ir.Value]:
    """The last place of each sequence, and how many tokens the longest has."""
    known: dict[str, Any] = {"buffer/one": 1, "buffer/axis": [1]}
    tensors = [ir.tensor(np.array(x, np.int64), name=name) for name, x in known.items()]
    constants = [ir.Value(name=tensor.name, const_value=tensor) for tensor in tensors]
    for value in constants:
        graph.register_initializer(value)
    total = ir.node("ReduceSum", [mask, constants[1]], attributes={"keepdims": 0})
    last = ir.node("Sub", [total.outputs[0], constants[0]])
    lasts = ir.node("Cast", [last.outputs[0]], attributes={"to": ir.DataType.INT32})
    shape = ir.node("Shape", [mask])
    length = ir.node("Gather", [shape.outputs[0], constants[0]])
    longest = ir.node("Cast", [length.outputs[0]], attributes={"to": ir.DataType.INT32})
    graph.insert_before(graph[0], [total, last, lasts, shape, length, longest])
    return [lasts.outputs[0], longest.outputs[0]]


def _replace(graph: ir.Graph, site: _Site, more: list[ir.Value]) -> None:
    node = site.node
    get = node.attributes
    operands = [site.query, site.key, node.inputs[2]]
    if (packed := _packed(operands)) is not None:
        operands = [packed, None, None]
    attributes = {
        "num_heads": get.get_int("q_num_heads", 0), "kv_num_heads": get.get_int("kv_num_heads", 0),
        "do_rotary": int(site.angles is not None), "rotary_interleaved": site.interleaved,
    }  # fmt: skip
    floats = {name: get.get_float(name, 0.0) for name in ("scale", "softcap") if name in get}
    grouped = ir.node(
        "GroupQueryAttention",
        [*operands, node.inputs[4], node.inputs[5], *more],
        attributes={**attributes, **floats},
        domain=_MICROSOFT,
        num_outputs=3,
    )
    for before, after in zip(node.outputs, grouped.outputs, strict=False):
        after.name, after.type, after.shape = before.name, before.type, before.shape
    graph.insert_before(node, grouped)
    for before, after in zip(node.outputs, grouped.outputs, strict=False):
        ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _packed(operands: Sequence[ir.Value | None]) -> ir.Value | None:
    """The value that queries, keys and values are the parts of, as the kernel takes it too."""
    maker = None if operands[0] is None else operands[0].producer()
    if maker is None or maker.op_type != "Split" or list(maker.outputs) != list(operands):
        return None
    value = maker.inputs[0]
    rank = None if value is None or value.shape is None else value.shape.rank()
    return value if maker.attributes.get_int("axis", 0) in (-1, rank and rank - 1) else None
