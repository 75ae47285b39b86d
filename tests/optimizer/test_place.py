import onnx_ir as ir
from rewriting import parse

from torchferry.graph.subgraph import subgraphs
from torchferry.optimizer.place import Place, all_nodes

LOOP = """g (float[a] x, int64 n, bool go) => (float[a] y) {
   two = Constant <value_float = 2.0> ()
   y = Loop (n, go, x) <body = b (int64 i, bool c, float[a] s) => (bool c2, float[a] t) {
      c2 = Identity (c)
      t = Mul (s, two)
   }>
}"""


def test_nodes_that_are_put_before_others_are_in_order():
    model = parse("g (float[a] x) => (float[a] y) { s = Relu(x) y = Neg(s) }")
    place = Place(model)
    relu, neg = place.nodes
    new = [ir.node(name, []) for name in ("Abs", "Exp", "Log", "Sin")]
    for node in new:
        node.outputs[0].name = place.fresh(node.op_type)
    place.insert(neg, new[:2])
    place.insert(neg, new[2:3])
    place.insert(new[0], new[3:])
    wanted = [relu, new[3], new[0], new[1], new[2], neg]
    assert list(model.graph) == wanted
    for index, node in enumerate(wanted):
        assert place.first(reversed(wanted[index:])) is node


def test_subgraphs_have_a_node_around_them():
    model = parse(LOOP)
    place = Place(model)
    loop = next(node for node in model.graph if node.op_type == "Loop")
    (body,) = subgraphs(loop)
    mul = body[1]
    assert len(list(all_nodes(model))) == 4
    assert place.around(mul, model.graph) is loop
    assert place.around(mul, body) is mul
    assert place.around(loop, body) is None
    assert place.ready(mul.inputs[1], mul)
    assert not place.ready(loop.outputs[0], model.graph[0])
    assert place.fresh("two") == "two_0"


def test_equal_constants_are_stored_once():
    model = parse(LOOP)
    place = Place(model)
    mul = list(all_nodes(model))[-1]
    first, second, other = (
        place.store(ir.val("c", const_value=ir.tensor([v]), type=None), mul) for v in (1, 1, 2)
    )
    assert first is second
    assert first is not other
    assert set(model.graph.initializers) == {first.name, other.name}
