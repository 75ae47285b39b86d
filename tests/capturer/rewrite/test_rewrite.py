import pytest
import torch

from torchferry.capturer import capture, rewritten
from torchferry.capturer.rewrite.names import DISPATCH
from torchferry.errors import CaptureError
from torchferry.observer import Observation


class Chooses(torch.nn.Module):
    def __init__(self, double=True):
        super().__init__()
        self.double = double
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        if self.double:
            x = x * 2
        if x.sum() > 0:
            step = x + 1
            y = self.linear(step)
        elif not x.sum() > -1:
            y = x + 5
        else:
            y = x - 1
        assert x.min() > -100, "small"
        return y


class Returns(torch.nn.Module):
    def forward(self, x, y):
        if x.sum() > 0:
            return x + 1, y
        w = x * y
        return w, y - 1


class Halves(torch.nn.Module):
    def forward(self, x):
        n = torch.zeros((), dtype=torch.int64)
        while x.abs().sum() > 1:
            x = x / 2
            n += 1
        return x, n


class Signs(torch.nn.Module):
    def forward(self, x, y=None):
        y = x if y is None else y
        sign = 1 if x.shape[-1] > 100 else -1
        return x * sign if x.sum() > 0 else (y + 1 if x.sum() > -1 else y - 1)


class Flags(torch.nn.Module):
    """Python decides, in ways that tensors could not."""

    def __init__(self):
        super().__init__()
        self.one, self.__scale, self.seen = False, 2.0, []

    def forward(self, x):
        if not self.one:
            self.seen.append(1)
        y = x * self.__scale if x.sum() > 0 else x
        n = 3
        while (n := n - 1) > 0:
            y = y * 2
        if (m := n + 2) > 1:
            m = m + 1
        if self.one:
            return y
        return (y * m,)


class Keeps(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            self.seen = 1
        while x.sum() > 1:
            break
        for layer in [torch.relu]:
            x = layer(x)
        return x


SETS = {
    Chooses: [(torch.full((n, 3), v),) for n, v in ((2, 1.0), (4, -1.0), (3, -0.01))],
    Returns: [(torch.ones(2), torch.rand(2)), (-torch.ones(4), torch.rand(4))],
    Halves: [(torch.rand(2),), (torch.rand(9) * 50,), (torch.zeros(3),)],
    Signs: [(torch.full((n, 3), v),) for n, v in ((2, 1.0), (4, -1.0), (3, -0.01))],
    Flags: [(torch.full((n, 3), v),) for n, v in ((2, 1.0), (4, -1.0), (3, -0.01))],
}


@pytest.mark.parametrize("make", SETS, ids=lambda make: make.__name__)
def test_what_is_rewritten_is_captured_and_right(make, captured):
    torch.manual_seed(0)
    found = captured(make(), SETS[make], rewrite=True)
    assert f"{make.__name__}.forward, rewritten" in found.rewritten


@pytest.mark.parametrize("make", SETS, ids=lambda make: make.__name__)
def test_eager_computes_the_same_within_the_block_and_the_class_is_as_before(make):
    model, before = make(), make.forward
    wants = [model(*one) for one in SETS[make]]
    with torch.no_grad(), rewritten(model) as rewriting:
        for one, want in zip(SETS[make], wants, strict=True):
            torch.testing.assert_close(model(*one), want)
    assert make.forward is before
    assert (rewriting.refused == []) is (make is not Flags)


def test_a_flag_of_python_stays_one():
    model = Chooses(double=False)
    x = torch.ones(2, 3)
    want = model(x)
    with rewritten(model):
        torch.testing.assert_close(model(x), want)


def test_a_check_still_raises_its_own_error():
    class Checks(torch.nn.Module):
        def forward(self, x):
            if x.shape[0] > 2:
                raise KeyError("rows")
            return x

    with rewritten(Checks()) as rewriting, pytest.raises(KeyError, match="rows"):
        Checks()(torch.ones(3))
    assert "raise KeyError" in str(rewriting)


def test_checks_alone_wherever_they_stand():
    class Checks(torch.nn.Module):
        def forward(self, x, y=None):
            if y is not None:
                if x.sum() < y:
                    raise ValueError("less")
                elif x.sum() > 100:  # noqa: RET506  (an elif is what is tested)
                    raise KeyError("more")
            for t in (x, x + 1):
                assert t.max() < 50, "large"
            return x if x.sum() > 0 else -x

    with rewritten(Checks(), only_checks=True) as rewriting:
        assert Checks()(-torch.ones(2)).tolist() == [1, 1]
        assert Checks()(torch.ones(2), 1).tolist() == [1, 1]
        wrong = ((torch.ones(2), 3), (torch.ones(2) * 60,), (torch.ones(9) * 20, 1))
        for given in wrong:
            with pytest.raises(RuntimeError, match=r"assertion|Expected"):
                Checks()(*given)
    assert " return x if x.sum() > 0 else -x" in rewriting.diff
    assert rewriting.diff.count(f"{DISPATCH}.check(") == 3


def test_what_is_left_alone_and_why():
    with rewritten(Keeps()) as rewriting:
        assert Keeps()(torch.ones(1)).tolist() == [1]
    (one, *others) = rewriting.refused
    assert one.where.startswith(f"{__file__}:")
    assert one.line == "if x.sum() > 0:"
    assert one.reason == "it sets self.seen"
    assert others[-1].reason.startswith("only a loop over a range")
    assert rewriting.why(f"{one.where}: {one.line}") == (one,)
    assert rewriting.why(None) == ()


def test_closures_defaults_and_super():
    outer = 3

    class Parent(torch.nn.Module):
        def forward(self, x):
            return x + outer

    class Child(Parent):
        def forward(self, x, *, scale=2.0):
            y = super().forward(x)
            if y.sum() > 0:
                y = y * scale
            return y + outer

    with rewritten(Child()) as rewriting:
        assert Child()(torch.ones(2)).tolist() == [11, 11]
        assert Child()(torch.ones(2), scale=1.0).tolist() == [7, 7]
    assert DISPATCH in rewriting.diff


def test_super_within_an_if_stays_python_s():
    class Child(Halves):
        def forward(self, x):
            if x.shape[0] > 1:
                x, _ = super().forward(x)
            return x + 1

    with rewritten(Child()) as rewriting:
        assert Child()(torch.full((2,), 4.0)).tolist() == [1.5, 1.5]
    assert "it calls super()" in rewriting.refused[0].reason


def test_it_is_undone_after_an_error():
    before = Halves.forward
    with pytest.raises(ZeroDivisionError), rewritten(Halves()):
        raise ZeroDivisionError
    assert Halves.forward is before


class Constants(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # constants
            k, y = 2, x
        else:
            k, y = 3, -x
        return y * k


class Texts(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # texts
            k, y = "a", x
        else:
            k, y = "b", -x
        return y * len(k)


class Pairs(torch.nn.Module):
    def forward(self, x):
        h = torch.zeros(3)
        for row, other in zip(x, x * 2, strict=True):
            h = torch.tanh(h + row) * other
        return h


class Sums(torch.nn.Module):
    def forward(self, x):
        ys = []
        for row in x:
            y = row.sum()
            ys.append(y)
        return ys[1]


class Appends(torch.nn.Module):
    def forward(self, x):
        y, ys = x, []
        if x.sum() > 0:  # appends
            y = x * 2
            ys.append(y)
        return y, ys


def seen_of(model):
    return Observation.from_inputs(model, [(torch.ones(n, 3),) for n in (2, 4)])


def test_a_number_that_a_tensor_decides_becomes_a_tensor(captured):
    sets = [(torch.full((n, 3), v),) for n, v in ((2, 1.0), (4, -1.0), (3, -0.01))]
    captured(Constants(), sets, rewrite=True)


def test_a_text_that_a_tensor_decides_is_an_error_that_names_the_line(line):
    with pytest.raises(CaptureError) as caught:
        capture(Texts(), seen_of(Texts()), rewrite=True)
    said = str(caught.value)
    assert line("texts") in said
    assert "Make it a tensor on both sides" in said


def test_why_a_line_was_not_rewritten_is_told(line):
    with pytest.raises(CaptureError, match=r"not rewritten, as it calls ys\.append") as caught:
        capture(Appends(), seen_of(Appends()), rewrite=True)
    assert line("appends") in str(caught.value)
    for make in (Pairs, Sums):  # these were refused before
        assert not capture(make(), seen_of(make()), rewrite=True).fixed
