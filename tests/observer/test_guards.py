"""What torch notes of the tests on sizes: their lines, who asked, and what is asked later."""

from __future__ import annotations

import re

import torch

from torchferry.observer.conditions import conditions_of
from torchferry.observer.guards import (
    chosen,
    guard_lines,
    later_guards,
    mixed_numbers,
    note_choices,
    note_guards,
    noted_guards,
)
from torchferry.seams.symbols import expression_text

DYNAMIC = torch.export.Dim.DYNAMIC


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 5:
            x = x + 1
        return x[:, :2].reshape(-1, 4)


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(
        Model(), (torch.randn(12, 3),), dynamic_shapes=({0: DYNAMIC},),
        prefer_deferred_runtime_asserts_over_guards=False,
    )  # fmt: skip


def test_a_line_for_what_the_user_asked_and_a_choice_for_what_an_operator_asked() -> None:
    program = exported()
    lines = guard_lines(program)
    choices = chosen(program)
    asked = {text: text in choices for text, _ in noted_guards(program)}
    assert set(lines) == set(asked)
    (of_the_user,) = (text for text, choice in asked.items() if not choice)
    assert "5" in of_the_user
    assert any(asked.values())  # view asks for strides
    assert lines[of_the_user].endswith("if x.shape[0] > 5:")


def test_guards_that_are_noted_as_choices_are_choices() -> None:
    program = exported()
    expressions = {text: str(guard.expr) for text, guard in noted_guards(program)}
    (of_the_user,) = set(expressions) - chosen(program)
    note_choices(program, [expressions[of_the_user]])
    assert chosen(program) == set(expressions)


def test_guards_of_a_block_are_noted_once_and_become_conditions() -> None:
    program = exported()
    size = next(node for node in program.graph.nodes if node.name == "x").meta["val"].shape[0]
    before, known = noted_guards(program), conditions_of(program)
    with note_guards(program):
        assert size < 77
    with note_guards(program):
        assert size < 77
    assert len(later_guards(program)) == 1
    assert noted_guards(program) == before
    (new,) = {*conditions_of(program)} - {*known}
    assert new.choice
    assert "< 77" in str(new)
    assert later_guards(exported()) == []


def picks(function, size):
    program = torch.export.export(
        Picks(function), (torch.arange(size),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    return [
        re.sub(r"s\d+", "n", re.sub(r"\.(\d)0+$", r".\1", expression_text(one)))
        for one in mixed_numbers(program)
    ]


class Picks(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, x.shape[0])


def test_an_integer_and_a_float_compete_where_it_shows():
    assert picks(lambda x, n: x * torch.sym_max(1, n / 4), 8) == ["(n / 4) > 1.0"]
    assert picks(lambda x, n: x * torch.sym_min(n, 2.5), 8) == ["torch.sym_float(n) > 2.5"]
    # The integer won as it was traced, all are floats, or an integer is made of either.
    assert picks(lambda x, n: x * torch.sym_max(1, n / 4), 3) == []
    assert picks(lambda x, n: x.float() * torch.sym_max(1, n / 4), 8) == []
    assert picks(lambda x, n: x * int(torch.sym_max(1, n / 4)), 8) == []
    assert picks(lambda x, n: x * torch.sym_max(1.5, n / 4), 8) == []
