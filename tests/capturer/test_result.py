import pytest
import torch

from torchferry.capturer import Attempt, Captured, Fixed, capture
from torchferry.errors import UsageError
from torchferry.observer import Observation


def test_sizes_are_those_of_constants_only():
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    fixed = (Fixed("x", 0, "a", 3, None), Fixed("x", 1, "b", "a", None))
    found = Captured(program, {}, (Attempt("one", None),), fixed)
    assert found.sizes == {"a": 3}
    assert found.patches == found.registered == found.changed == ()


def test_bounds_are_those_of_the_branches():
    class Narrows(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.shape[0] < 30 else x - 1

    model = Narrows()
    seen = Observation.from_inputs(model, [((torch.randn(n, 2),), {}) for n in (4, 6)])
    assert capture(model, seen).bounds(seen) == {"batch_size": (0, 29)}


def test_a_program_is_saved_whole(tmp_path):
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    path = tmp_path / "relu.pt2"
    path.write_text("older")
    Captured(program, {}, ()).save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert torch.export.load(path).module()(-torch.ones(2)).tolist() == [0, 0]


class Adds(torch.nn.Module):
    def forward(self, x, y=None, *, z=2):
        return x + y * z


def test_a_capture_is_called_by_position_or_by_name():
    sets = [(torch.rand(n, 3), torch.rand(n, 3)) for n in (2, 4)]
    captured = capture(Adds(), Observation.from_inputs(Adds(), sets))
    x, y = torch.rand(5, 3), torch.rand(5, 3)
    for found in (captured(x, y), captured(x, y=y), captured(y=y, x=x)):
        torch.testing.assert_close(found, x + y * 2)
    for args, kwargs, says in (
        ((x, y, x), {}, "takes x, y, not 3 arguments by position"),
        ((x,), {"x": x}, "takes x, y, not x by position"),
        ((x,), {}, "captured with y: give it too"),
    ):
        with pytest.raises(UsageError, match=says):
            captured(*args, **kwargs)


def test_an_argument_of_another_dtype_is_refused_though_nothing_is_computed_with_it():
    class Like(torch.nn.Module):
        def forward(self, x, other):
            return x.to(other.dtype)

    model = Like()
    calls = [((torch.randn(n), torch.ones(2)), {}) for n in (4, 5)]
    found = capture(model, Observation.from_inputs(model, calls))
    x, other = torch.randn(6), torch.ones(2)
    torch.testing.assert_close(found(x, other=other), x)
    with pytest.raises(UsageError, match=r"argument other is torch\.float64"):
        found(x, other.double())


def test_a_number_where_a_tensor_was_is_refused():
    class Scales(torch.nn.Module):
        def forward(self, x, lengths):
            return x * lengths[:, None]

    seen = Observation.from_inputs(
        Scales(), [((torch.rand(n, 3), torch.ones(n)), {}) for n in (2, 4)]
    )
    found = capture(Scales(), seen)
    with pytest.raises(
        UsageError, match="argument lengths is a int, and was captured as a tensor"
    ):
        found(torch.rand(2, 3), 2)
