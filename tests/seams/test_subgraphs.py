import torch

from torchferry.seams import subgraphs


def test_operators_trace_functions_as_they_are():
    x = torch.ones(3)
    (found,) = subgraphs.branch_operator()(
        torch.tensor(True), lambda y: (y + 1,), lambda y: (y,), (x,)
    )
    assert found.tolist() == [2, 2, 2]
    (found,) = subgraphs.repeat_operator()(lambda y: y.sum() < 9, lambda y: (y * 2,), (x,), ())
    assert found.tolist() == [4, 4, 4]
    last, steps = subgraphs.steps_operator()(lambda h, y: [h + y, h * y], [x[0]], [x], ())
    assert (last.item(), steps.tolist()) == (4, [1, 2, 3])


class Hides(torch.nn.Module):
    def forward(self, x):
        assert subgraphs.is_tracing()
        self.modes = len(subgraphs.export_modes())
        with subgraphs.without_tracing([x]) as is_known:
            assert not subgraphs.is_tracing()
            number = x.long()[0, 0].item()
            subgraphs.limit_size(number)
            self.known = is_known(x.shape[0]), is_known(number)
        subgraphs.limit_size(3)
        return x + 1


def test_what_runs_unseen_leaves_nothing_in_the_trace():
    model = Hides()
    assert not subgraphs.is_tracing()
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(model, (torch.ones(2, 3),), dynamic_shapes=shapes, strict=False)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert len(calls) == 1
