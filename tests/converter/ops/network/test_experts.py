"""Grouped matrix products against eager: groups of other sizes, empty ones among them."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

TARGET = torch.ops.aten._grouped_mm.default


def half(*sizes):
    return torch.randn(sizes).bfloat16()


def ends(*offsets):
    return torch.tensor(offsets, dtype=torch.int32)


def test_rows_by_group():
    check(
        lambda x, w, offs: torch._grouped_mm(x, w, offs=offs),
        (half(16, 16), half(3, 16, 8), ends(4, 4, 16)),
        (half(24, 16), half(3, 16, 8), ends(0, 8, 24)),
        target=TARGET,
    )


def test_two_layers_of_groups():
    def layers(x, w, v, offs):
        return torch._grouped_mm(torch._grouped_mm(x, w, offs=offs), v, offs=offs)

    check(layers, (half(16, 16), half(2, 16, 8), half(2, 8, 16), ends(5, 16)), tolerance=0.1)


def test_groups_of_columns_are_refused():
    program = export(
        lambda x, w, offs: torch._grouped_mm(x, w, offs=offs),
        (half(16, 16), half(16, 16), ends(8, 16)),
    )
    with pytest.raises(LoweringFailed, match="only rows of a 2-dimensional one are grouped"):
        translate(program, 20)
