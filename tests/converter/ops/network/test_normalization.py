"""Normalization layers against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter import convert
from torchferry.errors import ConversionError
from torchferry.graph.runtime import DOUBLE_NORMS
from versions import can

aten = torch.ops.aten
f = nn.functional
r = torch.randn


def trained(module):
    """With weights and statistics that are not zeros and ones."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    for buffer in module.buffers():
        if buffer.dtype.is_floating_point:
            nn.init.uniform_(buffer, 0.5, 1.5)
    return module.eval()


ROWS = (r(2, 3, 4),), (r(1, 5, 4),), (r(0, 3, 4),)
HALF = (r(2, 3, 4).half(),), (r(1, 5, 4).half(),)
GROUPS = (r(2, 6, 4, 3),), (r(1, 6, 5, 3),)

CASES = [
    (aten.layer_norm.default, trained(nn.LayerNorm(4)), ROWS),
    (aten.layer_norm.default, trained(nn.LayerNorm((3, 4), 0.1)), [(r(2, 3, 4),), (r(1, 3, 4),)]),
    (aten.layer_norm.default, nn.LayerNorm(4, elementwise_affine=False), ROWS),
    (aten.layer_norm.default, trained(nn.LayerNorm(4, bias=False)), ROWS),
    (aten.layer_norm.default, trained(nn.LayerNorm(4)).half(), HALF),
    (aten.layer_norm.default, trained(nn.LayerNorm(4)).double(), [(r(2, 4).double(),)]),
    (aten.layer_norm.default, lambda x: f.layer_norm(x, x.shape[1:]), [(r(2, 4),), (r(2, 6),)]),
    (aten.native_layer_norm.default,
     lambda x, w: torch.native_layer_norm(x, [4], w, None, 1e-5), [(r(2, 3, 4), r(4))]),
    (aten.group_norm.default, trained(nn.GroupNorm(2, 6)), GROUPS),
    (aten.group_norm.default, nn.GroupNorm(3, 6, affine=False), [(r(2, 6),), (r(1, 6),)]),
    (aten.group_norm.default, trained(nn.GroupNorm(2, 6)), [(r(2, 6, 4),), (r(0, 6, 4),)]),
    (aten.group_norm.default, trained(nn.GroupNorm(2, 6)).double(), [(r(2, 6, 4).double(),)]),
    (aten.native_group_norm.default,
     lambda x, w: torch.native_group_norm(x, w, None, 2, 6, 12, 3, 1e-5), [(r(2, 6, 4, 3), r(6))]),
    (aten.instance_norm.default, trained(nn.InstanceNorm2d(6, affine=True)), GROUPS),
    (aten.instance_norm.default, nn.InstanceNorm1d(3), [(r(3, 4),), (r(3, 6),)]),
    (aten.instance_norm.default, trained(nn.InstanceNorm1d(6, track_running_stats=True)),
     [(r(2, 6, 4),), (r(1, 6, 5),)]),
    (aten.instance_norm.default, nn.InstanceNorm1d(3).double(), [(r(2, 3, 4).double(),)]),
    (aten._weight_norm.default, lambda v, g: torch._weight_norm(v, g, 0), [(r(3, 4), r(3, 1))]),
    (aten._weight_norm.default, lambda v, g: torch._weight_norm(v, g, -1), [(r(3, 4), r(()))]),
    (aten._weight_norm_interface.default, lambda v, g: aten._weight_norm_interface(v, g, 0),
     [(r(3, 4), r(3, 1))]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize(
    ("function", "sets"),
    [
        (trained(nn.RMSNorm(4)), ROWS),
        (nn.RMSNorm((3, 4), eps=0.1, elementwise_affine=False), [(r(2, 3, 4),), (r(1, 3, 4),)]),
        (trained(nn.RMSNorm(4)).half(), HALF),
        (trained(nn.RMSNorm(4)).double(), [(r(2, 4).double(),)]),
    ],
)
def test_rms_norm(function, sets, opset):
    if sets[0][0].dtype == torch.float64 and opset < 23 and not can(DOUBLE_NORMS):
        pytest.skip(DOUBLE_NORMS.before)
    model = check(function, *sets, target=aten.rms_norm.default, opset=opset)
    if opset == 23:
        assert [node.op_type for node in model.graph] == ["RMSNormalization"]


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rms_norm_without_epsilon_takes_that_of_what_eager_computes_in(dtype, opset):
    small = torch.tensor([[-0.008, 0.001, -0.03, -0.004]])  # an epsilon of float16 would be 2/3
    check(nn.RMSNorm(4).to(dtype), (small.to(dtype),), (small.to(dtype) / 2,), opset=opset)


def test_parametrized_weight_norm():
    check(nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 2)), (r(2, 3, 5),), (r(1, 3, 7),))


def test_instance_norm_that_learns_is_refused():
    def learning(x, mean, var):
        return f.instance_norm(x, mean, var, use_input_stats=True)

    program = export(learning, (r(2, 3, 4), torch.zeros(3), torch.ones(3)))
    with pytest.raises(ConversionError, match=r"writes to input \w+, input \w+"):
        convert(program)
