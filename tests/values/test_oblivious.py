from __future__ import annotations

import torch

from torchferry.values.oblivious import sizes_oblivious


def _rows(on: bool) -> int | torch.SymInt:
    rows = {0: torch.export.Dim.AUTO}
    with sizes_oblivious(on):
        program = torch.export.export(torch.nn.ReLU(), (torch.ones(1, 2),), dynamic_shapes=(rows,))
    size: int | torch.SymInt = next(iter(program.graph.nodes)).meta["val"].shape[0]
    return size


def test_a_size_of_one_stays_dynamic_only_where_torch_is_told_so() -> None:
    assert isinstance(_rows(True), torch.SymInt)
    assert _rows(False) == 1
