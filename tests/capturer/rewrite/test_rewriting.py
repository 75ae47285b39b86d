from dataclasses import replace

import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.rewrite.rewriting import capture_rewritten
from torchferry.errors import CaptureError
from torchferry.observer import Observation


class Counts(torch.nn.Module):
    def forward(self, x):
        h = torch.zeros_like(x[0])
        for row in x:
            h = torch.tanh(h + row)
        if h.sum() > 0:
            h = h * 2
        return h


class Doubles(torch.nn.Module):
    def forward(self, x):
        return x.sum(0) * 2


class Texts(torch.nn.Module):
    def forward(self, x):
        words = "a" if x.sum() > 0 else "bc"
        return x * len(words)


class Plain(torch.nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = x * 2
        return x


def seen_of(model):
    return Observation.from_inputs(model, [(torch.rand(n, 3),) for n in (2, 4)])


def test_one_line_after_the_other_is_rewritten():
    found = capture(Counts(), seen_of(Counts()))
    assert not found.fixed
    targets = {str(node.target) for node in found.program.graph.nodes}
    assert {"scan", "cond"} <= targets
    assert "Counts.forward, rewritten" in found.rewritten
    lines = {number for _, number in found.decided}
    first = Counts.forward.__code__.co_firstlineno
    assert lines == {first + n for n in (2, 3, 4, 5)}


def test_lines_of_a_conditional_expression_are_decided_too():
    class Chooses(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    found = capture(Chooses(), seen_of(Chooses()))
    assert {line for _, line in found.decided} == {Chooses.forward.__code__.co_firstlineno + 1}


def test_what_can_be_captured_is_left_as_it_is():
    found = capture(Plain(), seen_of(Plain()))
    assert (found.rewritten, found.decided) == ("", frozenset())


def test_the_error_is_that_of_the_code_as_it_is_or_says_more():
    with pytest.raises(CaptureError, match="a tensor decides what a name is") as caught:
        capture(Texts(), seen_of(Texts()))
    assert caught.value.line is not None
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        capture(Texts(), seen_of(Texts()), rewrite=False)


@pytest.mark.parametrize("right", [True, False])
def test_a_rewritten_program_that_is_wrong_does_not_count(right):
    model = Counts()
    other = model if right else Doubles()
    found = capture(other, seen_of(other), rewrite=True)
    seen = seen_of(model)
    seen.calls = [replace(call, outputs=model(*call.args)) for call in seen.calls]

    def run(rewriting):
        if rewriting is None:
            raise CaptureError("as it is", line=f"{__file__}:1: if")
        return found

    if right:
        assert capture_rewritten(model, seen, run, "auto").program is found.program
        return
    with pytest.raises(CaptureError, match="as it is") as caught:
        capture_rewritten(model, seen, run, "auto")
    assert "rewritten, it" in caught.value.__notes__[0]
