import torch

from torchferry.seams import symbols


def test_sizes_are_known_or_not():
    sizes = {}

    class Model(torch.nn.Module):
        def forward(self, x, mask):
            sizes["n"], sizes["u"] = x.shape[0], x[mask].shape[0]
            sizes["known"] = symbols.is_known_true(x.shape[0] >= 0)
            sizes["open"] = symbols.is_known_true(x.shape[0] > 7)
            return x + 1

    dims = {"x": {0: torch.export.Dim.DYNAMIC}, "mask": {0: torch.export.Dim.DYNAMIC}}
    arguments = (torch.ones(4), torch.ones(4, dtype=torch.bool))
    torch.export.export(Model(), arguments, dynamic_shapes=dims)
    assert (sizes["known"], sizes["open"]) == (True, False)
    assert not symbols.has_unbacked_symbols(sizes["n"])
    assert symbols.has_unbacked_symbols(sizes["u"])
    assert not symbols.has_unbacked_symbols(3)


def test_a_function_of_one_place_is_traced():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(shape_env=symbols.new_shape_env()):
        table, places = torch.ones(5), torch.arange(3)
        with symbols.vmap_indexing():
            over = torch.vmap(lambda place: table[place])
        graph = symbols.trace_fake(lambda p: over(p) * 2, tracing_mode="symbolic")(places)
    assert any("mul" in str(node.target) for node in graph.graph.nodes)


def test_guards_are_written_in_python():
    guard = "torch.sym_max(s0, 3) <= 5 + torch.sym_min(s1, s0)"
    assert symbols.plain_text(guard) == "max(s0, 3) <= 5 + min(s1, s0)"
