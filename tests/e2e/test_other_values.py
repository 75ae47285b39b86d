"""What only values, classes and sizes unlike those recorded show."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchferry as tf
from torchferry.errors import FerryError, UsageError


def ids(*sizes: int) -> torch.Tensor:
    return torch.randint(0, 5, sizes, generator=torch.Generator().manual_seed(sum(sizes)))


class Limit(nn.Module):
    """One of two limits, by the length: the same instructions run."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3)

    def forward(self, x):
        return self.table(x.clamp(max=(49, 10)[int(x.shape[1] == 1)]))


class OneIsBad(nn.Module):
    def forward(self, x):
        return x == (7, 40)[int(x.shape[1] == 1)]


class ByBatch(nn.Module):
    TABLE = (3, 30, 60)

    def forward(self, x):
        return x.clamp(max=self.TABLE[min(x.shape[0], 2)])


ROW, COLUMN = torch.tensor([[30, 41, 7]]), torch.tensor([[30], [40]])


@pytest.mark.sample(3)
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("make", "accepted", "refused"),
    [(Limit, ROW, COLUMN), (OneIsBad, ROW, COLUMN), (ByBatch, COLUMN, ROW)],
)
def test_a_table_of_integers_in_the_place_of_an_if(make, accepted, refused, check):
    torch.manual_seed(0)
    model = make().eval()
    made = tf.export(model, [(ids(2, 3),), (ids(3, 4),)], check=check, progress=False)
    for given in (torch.tensor([[30, 20], [40, 41], [2, 7]]), accepted):
        torch.testing.assert_close(made(given), model(given))
    with pytest.raises(UsageError, match="its code does something else there"):
        made(refused)


class Differ(nn.Module):
    def forward(self, x, y):
        return x.sum() + y.sum() if x.shape[0] == y.shape[0] else x.sum() - y.sum()


def test_torch_onnx_keeps_the_conditions_of_its_capture():
    sets = [(torch.randn(4), torch.randn(2)), (torch.randn(5), torch.randn(3))]
    made = tf.export(Differ(), sets, exporter="onnx_dynamo", budget=10, progress=False)
    x, y = torch.randn(7), torch.randn(6)
    torch.testing.assert_close(made(x, y), Differ()(x, y))
    with pytest.raises(UsageError, match="batch_size != y_dim_0"):
        made(x, x)


def test_a_program_whose_guards_are_assertions_keeps_them():
    dynamic = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(
        Differ().eval(), (torch.randn(4), torch.randn(2)), dynamic_shapes=(dynamic, dynamic),
        prefer_deferred_runtime_asserts_over_guards=True,
    )  # fmt: skip
    made = tf.to_onnx(program)
    x, y = torch.randn(7), torch.randn(6)
    torch.testing.assert_close(made(x, y), Differ()(x, y))
    with pytest.raises(UsageError, match="!="):
        made(x, x)


class Masked(nn.Module):
    def forward(self, x, mask):
        return x.masked_fill(mask & (x.shape[0] == 1), 0.0)


def test_another_exporter_is_tried_with_other_values():
    """``torch.onnx`` leaves the ``&`` out; all masks that were recorded are empty."""
    sets = [(torch.randn(n, 3), torch.zeros(n, 3, dtype=torch.bool)) for n in (2, 3)]
    x, mask = torch.randn(2, 3), torch.ones(2, 3, dtype=torch.bool)
    made = tf.export(Masked(), sets, exporter="onnx_dynamo", budget=10, progress=False)
    assert not made.report.ok
    with pytest.raises(FerryError):
        made(x, mask)
    ours = tf.export(Masked(), sets, budget=10, progress=False)
    assert ours.report.ok
    torch.testing.assert_close(ours(x, mask), x)


class Rows(nn.Module):
    def forward(self, x, mask):
        return x[mask].squeeze(0)


class Places(nn.Module):
    def forward(self, x, mask):
        return x[mask.nonzero().squeeze()]


@pytest.mark.parametrize("make", [Rows, Places])
def test_an_axis_that_values_would_take_away_is_tested_as_the_graph_runs(make, tmp_path):
    masks = [[1, 0, 1, 0], [1, 0, 1, 1, 0], [0, 0, 0], [1, 1, 1, 1, 1, 1]]
    sets = [(torch.randn(len(m), 3), torch.tensor(m, dtype=torch.bool)) for m in masks]
    made = tf.export(make(), sets[:2], budget=10, progress=False)
    assert made.report.ok
    made.save(tmp_path / "model.onnx")
    one = torch.randn(5, 3), torch.tensor([0, 0, 1, 0, 0], dtype=torch.bool)
    for program in (made, tf.load(tmp_path / "model.onnx")):
        for given in sets:
            torch.testing.assert_close(program(*given), make()(*given))
        with pytest.raises(UsageError, match="an axis whose size depends on data"):
            program(*one)


class Grows(nn.Module):
    """A table that grows with the length, and its size, as rotary embeddings had it."""

    def __init__(self) -> None:
        super().__init__()
        self.grow(8)

    def grow(self, size: int) -> None:
        self.size = size
        self.register_buffer("table", torch.arange(size).float().cos(), persistent=False)

    def forward(self, x):
        if x.shape[1] > self.size:
            self.grow(x.shape[1])
        return x * self.table[: x.shape[1], None]


@pytest.mark.parametrize("check", [True, False])
def test_a_model_that_grows_is_as_before(check):
    model = Grows()
    sets = [(torch.randn(2, 3, 2),), (torch.randn(3, 5, 2),)]
    made = tf.export(model, sets, check=check, budget=10, progress=False)
    assert (model.size, len(model.table)) == (8, 8)
    x = torch.randn(1, 7, 2)
    torch.testing.assert_close(made(x), model(x))
    with pytest.raises(UsageError, match="<= 8"):
        made(torch.randn(1, 9, 2))
    assert model(torch.randn(2, 9, 2)).shape == (2, 9, 2)


class Remembers(nn.Module):
    @functools.cached_property
    def table(self):
        return torch.arange(4) * 2

    def forward(self, x):
        return x * self.table


class Anchors(nn.Module):
    """What is kept for a size belongs to that size, as detectors have it."""

    shape = None

    def forward(self, x):
        if self.shape != x.shape[1:]:
            self.shape = x.shape[1:]
            self.anchors = torch.arange(x.shape[1]).float()
        return x + self.anchors


@pytest.mark.parametrize("make", [Remembers, Anchors])
@pytest.mark.parametrize("check", [True, False])
def test_what_a_trace_leaves_in_a_model_is_taken_out(make, check):
    model = make().eval()
    made = tf.export(
        model, [(torch.randn(2, 4),), (torch.randn(3, 4),)], check=check, budget=10, progress=False
    )
    x = torch.randn(5, 4)
    torch.testing.assert_close(made(x), model(x))
    assert type(model(x)) is torch.Tensor


class SumTo(nn.Module):
    def forward(self, x, y):
        total = x.sum_to_size(y.shape)
        total.add_(1)
        return x, total


@pytest.mark.parametrize("check", [True, False])
def test_a_sum_of_nothing_is_its_argument_itself(check):
    sets = [(torch.randn(n, 3), torch.randn(1, 3)) for n in (4, 5)]
    made = tf.export(SumTo(), sets, check=check, budget=10, progress=False)
    x, y = torch.randn(2, 3), torch.randn(1, 3)
    torch.testing.assert_close(made(x.clone(), y), SumTo()(x.clone(), y))
    with pytest.raises(UsageError, match="batch_size"):
        made(y.clone(), y)


class Tripled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result * 3 if function is torch.add else result


class Named(torch.Tensor):
    """A class that changes nothing."""


class Add(nn.Module):
    def forward(self, x):
        return torch.add(x, 1)


def test_a_class_of_tensors_with_rules_of_its_own_is_refused():
    tripled = [(torch.randn(n, 4).as_subclass(Tripled),) for n in (3, 5)]
    with pytest.raises(UsageError, match=r"argument x is of class Tripled.*as_subclass"):
        tf.export(Add(), tripled, progress=False)
    plain = [(torch.randn(3, 4),), (torch.randn(5, 4).as_subclass(Named),)]
    made = tf.export(Add(), plain, budget=10, progress=False)
    with pytest.raises(UsageError, match=r"input x is of class Tripled.*as_subclass"):
        made(*tripled[0])
    x = torch.randn(2, 4)
    for given in (x, x.as_subclass(Named), nn.Parameter(x)):
        torch.testing.assert_close(made(given), x + 1)


class Crop(nn.Module):
    """Windows of four, as Swin's: the part that counts is cut out again."""

    def forward(self, x):
        height, width = x.shape[1:3]
        y = F.pad(x, (0, 0, 0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4)) * 2
        return y[:, :height, :width].contiguous()


class CropAndAsk(nn.Module):
    def forward(self, x):
        width = x.shape[1]
        y = F.pad(x, (0, (4 - width % 4) % 4))[:, :width]
        return y * 2 if y.is_contiguous() else y.contiguous()


class EverySecond(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[::2].contiguous().add_(1)
        return y


def test_a_copy_that_is_none_at_some_sizes_is_no_condition():
    sets = [(torch.randn(2, 5, 6, 3),), (torch.randn(3, 9, 7, 3),)]
    made = tf.export(Crop(), sets, budget=20, progress=False)
    assert made.report.verdict.endswith("max abs 0")
    for sizes in ((1, 8, 5, 3), (1, 5, 8, 3), (2, 4, 4, 3), (1, 13, 16, 3)):
        x = torch.randn(sizes)
        torch.testing.assert_close(made(x), Crop()(x))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("make", "sets", "other"),
    [(CropAndAsk, ((2, 5), (3, 7)), (2, 8)), (EverySecond, ((3, 5), (4, 6)), (2, 5))],
)
def test_a_copy_that_is_none_is_a_condition_where_it_matters(make, sets, other, check):
    made = tf.export(
        make(), [(torch.randn(s),) for s in sets], check=check, budget=20, progress=False
    )
    x = torch.randn(5, 6)
    torch.testing.assert_close(made(x), make()(x))
    with pytest.raises(UsageError, match="its code does something else there"):
        made(torch.randn(other))


class Ratio(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] / x.shape[1] > 0.5 else x


class Root(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] ** 0.5 > 2.5 else x


class Halves(nn.Module):
    """A power of two, as a fast transform asks for."""

    def forward(self, x):
        n = x.shape[0]
        assert n & (n - 1) == 0, "no power of two"
        return torch.cat([x[: n // 2] + x[n // 2 :], x[: n // 2] - x[n // 2 :]])


@pytest.mark.sample(3)
@pytest.mark.parametrize("exporter", ["to_onnx", "onnx_dynamo"])
@pytest.mark.parametrize(
    ("model", "rows", "good", "bad"),
    [(Ratio(), (2, 3), (1, 4), (6, 9)), (Root(), (2, 3), (1, 6), (7, 9)),
     (Halves(), (4, 8), (2, 16), (6, 7))],
)  # fmt: skip
def test_floats_and_bits_of_sizes_decide(model, rows, good, bad, exporter):
    """torch.onnx defers what it asks of sizes, and writes nothing of floats."""
    sets = [(torch.rand(rows[0], 8),), (torch.rand(rows[1], 9),)]
    made = tf.export(model, sets, exporter=exporter, progress=False)
    assert made.report.ok, made.report.problems
    for n in good:
        x = torch.rand(n, 10)
        torch.testing.assert_close(made(x), model(x))
    for n in bad:
        with pytest.raises(UsageError, match="was exported for sizes with"):
            made(torch.rand(n, 10))


class Near(nn.Module):
    def forward(self, q, k):
        return q.sum() * 2 if abs(q.shape[1] - k.shape[1]) <= 1 else q.sum()


def test_a_distance_of_sizes_decides():
    sets = [(torch.rand(2, 5), torch.rand(2, 2)), (torch.rand(3, 9), torch.rand(3, 4))]
    made = tf.export(Near(), sets, progress=False)
    assert made.report.ok, made.report.problems
    for n, m in ((1, 7), (7, 1)):
        torch.testing.assert_close(made(torch.ones(2, n), torch.ones(2, m)), torch.tensor(2.0 * n))
    with pytest.raises(UsageError, match="was exported for sizes with"):
        made(torch.rand(2, 5), torch.rand(2, 6))


class AsksForLayout(nn.Module):
    def forward(self, x):
        return x * 2 if x.is_contiguous() else x


def test_a_capture_checks_what_the_code_asks_of_its_arguments():
    sets = [(torch.rand(4, 3),), (torch.rand(5, 3),)]
    made = tf.capture(AsksForLayout(), tf.Observation.from_inputs(AsksForLayout(), sets))
    x = torch.rand(6, 3)
    torch.testing.assert_close(made(x), x * 2)
    with pytest.raises(UsageError, match="is not contiguous"):
        made(torch.rand(3, 6).t())


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda x: x.to("meta"), "on device meta"), (torch.Tensor._neg_view, "resolve_neg")],
)
def test_tensors_that_hold_no_numbers_of_their_own(change, words):
    made = tf.export(
        Root(), [(torch.rand(2, 8),), (torch.rand(3, 9),)], check=False, progress=False
    )
    with pytest.raises(UsageError, match=words):
        made(change(torch.rand(2, 9)))
