import pytest
import torch

from torchferry.seams.operators import Absent, aten, higher_order, prims


def test_what_torch_has_is_torchs_own():
    assert aten.add.Tensor is torch.ops.aten.add.Tensor
    assert aten.__and__.Scalar is torch.ops.aten.__and__.Scalar
    assert prims.convert_element_type.default is torch.ops.prims.convert_element_type.default
    assert higher_order.cond is torch.ops.higher_order.cond
    assert {aten.rand: 1, aten.randn: 2}[torch.ops.aten.randn.default.overloadpacket] == 2
    assert aten.rand != torch.ops.aten.randn
    assert aten.relu(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        (aten.no_such.default, "aten.no_such.default"),
        (aten.add.no_such, "aten.add.no_such"),
        (aten.no_such, "aten.no_such"),
        (higher_order.no_such, "higher_order.no_such"),
    ],
)
def test_what_it_lacks_is_absent_and_equals_nothing_else(missing, name):
    assert isinstance(missing, Absent)
    assert str(missing) == name
    assert missing == Absent(name)
    assert missing not in {torch.ops.aten.add.Tensor, Absent("aten.other")}


def test_an_operator_may_be_defined_later():
    from torchferry.seams.operators import _Namespace

    late = _Namespace("ferrylate")
    assert isinstance(late.twice.default, Absent)
    library = torch.library.Library("ferrylate", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    assert late.twice.default is torch.ops.ferrylate.twice.default
