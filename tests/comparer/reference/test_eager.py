from __future__ import annotations

import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.reference.eager import explain_eager
from torchferry.comparer.reference.reference import of_program
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import Setting
from torchferry.converter import convert
from torchferry.judge.tolerance import Tolerance


def allows(expected, difference):
    return Tolerance.inside(torch.float32).allows(difference, expected)


def explained(module, program, *args):
    model = convert(program)
    reference = of_program(program, args, {}, model.graph)
    setting = Setting(model, {}, reference, Runner(), module, (args, {}))
    notes, verdict = explain_eager(setting, allows)
    return notes, verdict.kind


def test_a_right_capture_needs_no_word(small):
    assert explained(small.module, small.program, *small.args) == ([], "equal")


def test_a_wrong_capture_is_called_so(small):
    with torch.no_grad():
        small.module.head.bias = torch.nn.Parameter(small.module.head.bias + 1)
    notes, captured = explained(small.module, small.program, *small.args)
    (note,) = notes
    assert note.startswith(
        "eager mode differs from the captured program by 1: the capture is wrong"
    )
    assert captured == "differs"


class Noisy(torch.nn.Module):
    def __init__(self, more=False):
        super().__init__()
        self.more = more

    def forward(self, x):
        if self.more and not torch.compiler.is_exporting():
            torch.rand(1)
        return x + torch.rand_like(x)


def test_what_is_random_in_eager_mode_is_called_so():
    x = torch.rand(20)
    module = Noisy(more=True)
    notes, captured = explained(module, torch.export.export(module, (x,)), x)
    assert "and from itself: it computes something random" in notes[0]
    assert captured == "random"


def test_eager_mode_and_the_program_draw_the_same_numbers():
    x = torch.rand(20)
    assert explained(Noisy(), torch.export.export(Noisy(), (x,)), x) == ([], "equal")


def test_the_fast_path_of_a_transformer_is_explained_and_left_as_it_was():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 1)

        def forward(self, x, padding):
            return self.encoder(x, src_key_padding_mask=padding)

    module = Masked().eval()
    args = torch.rand(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    program = torch.export.export(module, args, strict=False)
    notes, captured = explained(module, program, *args)
    assert "the fast path of torch.nn.TransformerEncoder" in notes[0]
    assert captured == "equal"
    assert torch.backends.mha.get_fastpath_enabled()


def test_inputs_are_not_changed_by_a_module_that_writes_to_them():
    class Writes(torch.nn.Module):
        def forward(self, x):
            return x.mul_(2) + 1

    x = torch.ones(3)
    program = torch.export.export(torch.nn.Identity(), (x,))
    explained(Writes(), program, x)
    assert x.tolist() == [1, 1, 1]


class Unordered(torch.nn.Module):
    """Adds up in another order each time, unless it is told not to."""

    def __init__(self, refuses=False):
        super().__init__()
        self.calls, self.refuses = 0, refuses

    def forward(self, x):
        if torch.compiler.is_exporting():
            return x * 1
        if torch.are_deterministic_algorithms_enabled():
            if self.refuses:
                raise RuntimeError("sum_cuda does not have a deterministic implementation")
            return x + 2
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize(
    ("refuses", "says"), [(False, "it repeats itself"), (True, "sum_cuda does not have")]
)
def test_sums_in_no_fixed_order_are_not_called_random(refuses, says):
    module, x = Unordered(refuses), torch.rand(4)
    notes, captured = explained(module, torch.export.export(module, (x,)), x)
    assert "and from itself: it adds up in no fixed order" in notes[0]
    assert says in notes[0]
    assert captured == "random"
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_fast_path_is_explained_where_eager_mode_is_the_reference():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 1).eval()
    x, padding = torch.rand(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    args, kwargs = (x,), {"src_key_padding_mask": padding}
    program = torch.export.export(module, args, kwargs, strict=False)
    found = compare(module, convert(program), (args, kwargs), against="eager")
    assert found.ok
    assert "the fast path of torch.nn.TransformerEncoder" in found.notes[0]
    assert (
        compare(
            module,
            convert(program),
            (
                (torch.rand(2, 4, 8),),
                {"src_key_padding_mask": torch.zeros(2, 4, dtype=torch.bool)},
            ),
            against="eager",
        ).notes
        == ()
    )
