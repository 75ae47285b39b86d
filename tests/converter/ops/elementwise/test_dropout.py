"""Dropout: nothing in evaluation, refused in training."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
f = nn.functional
x = torch.randn(2, 3, 4)

CASES = [
    (aten.dropout.default, f.dropout),
    (aten.feature_dropout.default, f.dropout1d),
    (aten.alpha_dropout.default, f.alpha_dropout),
    (aten.feature_alpha_dropout.default, f.feature_alpha_dropout),
]


@pytest.mark.parametrize(("target", "function"), CASES)
def test_dropout(target, function):
    model = check(lambda x: function(x, 0.5, training=False) + 1, (x,), target=target)
    assert [node.op_type for node in model.graph] == ["Add"]
    check(lambda x: function(x, 0.0, training=True), (x,), target=target)
    program = export(lambda x: function(x, 0.5, training=True), (x,))
    with pytest.raises(LoweringFailed, match=r"in training mode is random, call model\.eval"):
        translate(program, 20)


def test_the_kernel_gives_a_mask():
    check(lambda x: aten.native_dropout(x, 0.5, False), (x,), target=aten.native_dropout.default)
