"""Conditions and loops against eager, at sizes other than those exported."""

import operator
import warnings

import pytest
import torch
from op_case import check, export, run
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.strict_mode import strict_mode

from torchferry.converter.block import Block as Inner
from torchferry.converter.lowering import find_lowering
from torchferry.converter.translate import translate

hop = torch.ops.higher_order
SETS = (torch.randn(3, 4),), (torch.randn(1, 4),), (-torch.rand(6, 4),)


@pytest.fixture(autouse=True)
def quiet_compiler():
    """Eager runs of these operators go through torch.compile, which warns of its own doings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.compiler.reset()


class Weighted(torch.nn.Module):
    """A module whose branches use its parameters."""

    def __init__(self, forward):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.w = torch.nn.Parameter(torch.rand(4))
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def branches(m, x):
    return torch.cond(x.sum() > 0, lambda x: m.linear(x) + m.w, lambda x: x - 1, (x,))


def size_branches(m, x):
    return torch.cond(
        x.shape[0] > 4, lambda x: (x + x.shape[0], x * 1), lambda x: (x - 1, x * 2), (x,)
    )


def nested_branches(m, x):
    def inner(x):
        return torch.cond(x.sum() > 5, lambda x: x * m.w, lambda x: x + 1, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


def two_branches(m, x):
    one = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
    return torch.cond(one.sum() > 3, lambda x: x * 3, lambda x: x + 1, (one,))


def counted(m, x):
    def step(i, x):
        return i + 1, x * m.w + 1

    return while_loop(lambda i, x: i < 5, step, (torch.tensor(0), x))


def until_large(m, x):
    return while_loop(lambda x: x.abs().sum() < 100, lambda x: (x * 2 + 1,), (x,))


def size_times(m, x):
    return while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x + 1), (0, x))


def never(m, x):
    return while_loop(lambda x: x.sum() > 1e9, lambda x: (x + 1,), (x,))


def accumulated(m, x):
    return scan(lambda c, y: (c + y, c * y + m.w), torch.zeros(4), x)


def accumulated_backwards(m, x):
    return scan(lambda c, y: (c + y, c * y), torch.zeros(3), x[:, :3].t(), dim=1, reverse=True)


def branch_in_scan(m, x):
    def step(c, y):
        new = torch.cond(y.sum() > 0, lambda c, y: c + y, lambda c, y: c - y, (c, y))
        return new, new * 2

    return scan(step, torch.zeros(4), x)


def mapped(m, x):
    return map_(lambda y, w: (y + w).sum(), x, m.w)


def scan_in_loop(m, x):
    def step(i, x):
        return i + 1, scan(lambda c, y: (c + y, c + y), torch.zeros(4), x)[1]

    return while_loop(lambda i, x: i < 2, step, (torch.tensor(0), x))


CASES = [
    (hop.cond, branches), (hop.cond, size_branches), (hop.cond, nested_branches),
    (hop.cond, two_branches), (hop.while_loop, counted), (hop.while_loop, until_large),
    (hop.while_loop, size_times), (hop.while_loop, never), (hop.scan, accumulated),
    (hop.scan, accumulated_backwards), (hop.scan, branch_in_scan), (hop.map_impl, mapped),
    (hop.while_loop, scan_in_loop),
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(("target", "function"), CASES)
def test_matches_eager(target, function):
    check(Weighted(function), *SETS, target=target)


def test_every_inner_name_is_used_once():
    model = translate(export(Weighted(branch_in_scan), *SETS), 20)
    names = [value.name for node in model.graph.all_nodes() for value in node.outputs]
    names += [value.name for graph in model.graphs() for value in graph.inputs]
    assert len(names) == len(set(names))


def test_a_block_without_gradients_is_written_in_place():
    def forward(m, x):
        with torch.no_grad():
            y = m.linear(x)
        return y * 2 + m.linear(x)

    with torch.enable_grad():
        program = torch.export.export(
            Weighted(forward), SETS[0], dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        )
    targets = {node.target for node in program.graph.nodes}
    assert hop.wrap_with_set_grad_enabled in targets
    graph = translate(program, 20).graph
    names = [value.name for node in graph for value in node.outputs]
    assert "Loop" not in {n.op_type for n in graph}
    assert len(names) == len(set(names))


def test_strict_mode_is_written_in_place():
    model = check(lambda x: strict_mode(lambda x: x + 1, (x,)), *SETS, target=hop.strict_mode)
    assert [node.op_type for node in model.graph] == ["Add"]


def test_autocast_is_refused_where_it_casts():
    def forward(m, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.linear(x)

    program = export(Weighted(forward), *SETS)
    (block,) = program.graph.find_nodes(op="call_function", target=hop.wrap_with_autocast)
    body = find_lowering(hop.wrap_with_autocast)
    with pytest.raises(ValueError, match="run_decompositions"):
        body.write(None, *block.args)
    assert body.write(Inner(20), "cpu", None, False, None, lambda b, x: [x], 3) == [3]


def test_associative_scan_of_a_program_made_elsewhere():
    """torch.export writes this operator on accelerators only; the graph is put together here."""
    combine = torch.fx.symbolic_trace(lambda a, b: (a * 0.5 + b,))
    for node in combine.graph.nodes:
        if node.op == "call_function":
            by_hand = {"mul": torch.ops.aten.mul.Tensor, "add": torch.ops.aten.add.Tensor}
            node.target = by_hand[node.target.__name__]
    program = export(lambda x: x * 1.0, *SETS)
    graph, module = program.graph, program.graph_module
    placeholder = next(iter(graph.nodes))
    row = placeholder.meta["val"][0]
    for node in combine.graph.nodes:
        node.meta["val"] = row if node.op != "output" else None
    module.combine = combine
    product = next(node for node in graph.nodes if node.op == "call_function")
    with graph.inserting_after(product):
        body = graph.get_attr("combine")
    with graph.inserting_after(body):
        scanned = graph.call_function(hop.associative_scan, (body, [product], ()))
    scanned.meta["val"] = (product.meta["val"],)
    with graph.inserting_after(scanned):
        result = graph.call_function(operator.getitem, (scanned, 0))
    result.meta["val"] = product.meta["val"]
    output = graph.output_node()
    output.args = ((result,),)
    program.graph_signature.output_specs[0].arg.name = result.name
    model = translate(program, 20)
    for (x,) in SETS:
        expected = [x[0]]
        for row in x[1:]:
            expected.append(expected[-1] * 0.5 + row)
        torch.testing.assert_close(run(model, (x,))[0], torch.stack(expected))
