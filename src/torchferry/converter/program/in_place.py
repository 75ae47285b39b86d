"""Writes in place that nobody can see, which need no second trace to become functional.

``x = conv(x); x += y`` writes to what was just made and is read by nobody afterwards: the value of
the sum takes its place. Any other write is left to torch's own functionalization.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import fx

from torchferry.seams.operators import Absent, aten
from torchferry.seams.pytorch import OpOverload, overload_name, schema_of

__all__ = ["functional_form", "is_seen_write", "unseen", "updates_statistics"]

_HARMLESS = {aten.detach_.default}
_NORMS = {aten.batch_norm.default, aten.instance_norm.default}

# Their results share no memory with an argument, in any case.
_FRESH = frozenset(
    {
        aten.add.Tensor, aten.addmm.default, aten.batch_norm.default, aten.bmm.default,
        aten.cat.default, aten.clone.default, aten.conv1d.default, aten.conv1d.padding,
        aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default, aten.conv3d.padding,
        aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input,
        aten.div.Tensor, aten.embedding.default, aten.exp.default, aten.gelu.default,
        aten.group_norm.default, aten.layer_norm.default, aten.linear.default,
        aten.matmul.default, aten.max_pool2d.default, aten.mm.default, aten.mul.Tensor,
        aten.relu.default, aten.sigmoid.default, aten.silu.default, aten.softmax.int,
        aten.sub.Tensor, aten.tanh.default,
    }
)  # fmt: skip


@cache
def functional_form(target: Any) -> Any:
    """The overload that returns what this one writes to its first argument; ``None`` if none does.

    >>> import torch
    >>> functional_form(torch.ops.aten.relu_.default)
    <OpOverload(op='aten.relu', overload='default')>
    """
    if not isinstance(target, OpOverload) or not schema_of(target).is_mutable:
        return None
    name = schema_of(target).name
    one = len(schema_of(target).returns) == 1
    if not one or not name.startswith("aten::") or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(aten, name.removeprefix("aten::").removesuffix("_"))
    form = getattr(packet, overload_name(target))
    if isinstance(form, Absent) or schema_of(form).is_mutable:
        return None
    names = [[a.name for a in schema.arguments] for schema in (schema_of(target), schema_of(form))]
    return form if names[0] == names[1] else None


def unseen(node: fx.Node) -> bool:
    """Whether a write in place is to a fresh value that nothing else reads afterwards."""
    if functional_form(node.target) is None or not isinstance(node.args[0], fx.Node):
        return False
    written = node.args[0]
    if written.target not in _FRESH and not unseen(written):
        return False
    others = [user for user in written.users if user is not node]
    return all(user.target in _FRESH and user < node for user in others)


def updates_statistics(node: fx.Node) -> bool:
    """Whether a node is a normalization in training mode, which updates running statistics.

    The schemas of these operators do not say so.
    """
    return node.target in _NORMS and node.args[5] is True and node.args[3] is not None


def is_seen_write(node: fx.Node) -> bool:
    """Whether a node writes in place to memory that another node or the caller may read."""
    target = node.target
    if updates_statistics(node):
        return True
    if not isinstance(target, OpOverload) or target in _HARMLESS:
        return False
    return schema_of(target).is_mutable and not unseen(node)
