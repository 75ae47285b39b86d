from pathlib import Path

import torch

from layered import arguments, layered, saved
from torchferry.comparer.layers.part import part_of
from torchferry.comparer.run.feeds import program_feeds
from torchferry.comparer.run.trace import trace_program
from torchferry.converter.translate import prepared


def test_a_part_computes_one_value_from_others(tmp_path: Path) -> None:
    _, program = saved(layered(), tmp_path)
    plain = prepared(program)
    values = dict(trace_program(plain, program_feeds(program, arguments(1, 4), {})))
    sums = [node.name for node in plain.graph.nodes if str(node.target) == "aten.add.Tensor"]
    part = part_of(plain, {sums[1], *(n for n in values if n.startswith("shift"))}, sums[3])
    assert part is not None
    taken = [node.name for node in part.graph.find_nodes(op="placeholder")]
    assert set(taken) <= {sums[1], "shift"}
    with torch.no_grad():
        got = part(**{name: values[name] for name in taken})
    assert torch.equal(got, values[sums[3]])


def test_a_part_that_takes_unknown_inputs_is_none(tmp_path: Path) -> None:
    _, program = saved(layered(), tmp_path)
    plain = prepared(program)
    last = [node.name for node in plain.graph.nodes if node.op == "call_function"][-1]
    assert part_of(plain, (), last) is None
    assert part_of(plain, (), "nothing") is None
