from __future__ import annotations

import torch

from torchferry.values.recurrent import compute_shapes_only, is_recurrent, keep_recurrent_whole

aten = torch.ops.aten


def test_real_numbers_come_from_the_operator() -> None:
    shapes = compute_shapes_only(lambda *_: (torch.ones(1),))
    (found,) = shapes(torch.zeros(2), torch.zeros(1))
    assert found.item() == 1


def test_everything_is_as_before_after_the_block() -> None:
    before = dict(aten.gru.data.py_kernels), dict(aten.gru.input.py_kernels)
    with keep_recurrent_whole():
        assert aten.gru.data.py_kernels != before[0]
    assert (aten.gru.data.py_kernels, aten.gru.input.py_kernels) == before


def test_cells_and_other_operators_are_no_layers() -> None:
    assert is_recurrent(aten.rnn_relu.data)
    assert not any(map(is_recurrent, (aten.gru_cell.default, aten.relu.default, len)))
