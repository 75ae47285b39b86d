import torch

from torchferry.capturer.draft import undecided_lines


class Twice(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # first
            x = x + 1
        if x.max() > 3:  # second
            x = x * 2
        return x


def test_every_line_is_told(line, capfd):
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    lines = undecided_lines(Twice(), (torch.ones(3),), {}, shapes)
    assert lines == (line("first"), line("second"))
    assert undecided_lines(torch.nn.ReLU(), (torch.ones(3),), {}, shapes) == ()
    capfd.readouterr()


def test_code_that_cannot_run_is_no_failure_of_its_own():
    class Raises(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no good")

    assert undecided_lines(Raises(), (torch.ones(3),), {}, ({},)) == ()


def test_what_an_iterator_raises_is_no_failure_either():
    class Empty(torch.nn.Module):
        def forward(self, x):
            return next(iter([])) + x

    assert undecided_lines(Empty(), (torch.ones(3),), {}, ({},)) == ()
