from __future__ import annotations

import torch

from torchferry.diagnoser import ModelDiagnoseOutput, StatusExport, StatusExportCode
from torchferry.diagnoser.explain.text import pretty_lines, report_rows, report_text, waiting_text
from torchferry.diagnoser.record.tree import Piece


def test_a_report_has_columns(tree: ModelDiagnoseOutput) -> None:
    failed = StatusExport(StatusExportCode.FAIL, "EXPORT", "because it's so")

    def status_of(piece: Piece) -> StatusExport | None:
        return failed if piece.name == "bad" else None

    assert report_text(tree, status_of).splitlines() == [
        "__main__    Model    <OK-2i-0>",
        "..b1        Block    <OK-2i-0>",
        "....good    Good     <OK-2i-0>",
        "......lin   Linear   <OK-2i-0>",
        """....bad     Bad      FAIL -- step=EXPORT, reason="because it's so\"""",
        "..head      Linear   <OK-2i-0>",
    ]
    assert next(report_rows(tree, status_of)) == ("__main__", "Model", "<OK-2i-0>")


def test_inputs_without_elements_are_not_enough(tree: ModelDiagnoseOutput) -> None:

    piece = Piece(None, "relu", torch.nn.ReLU())
    assert waiting_text(piece) == "<NOINPUT>"
    piece.add_call((torch.zeros(0),), {})
    assert waiting_text(piece) == "<OK-1i-may-need-more>"


def test_calls_are_shown_around_those_they_make(tree: ModelDiagnoseOutput) -> None:
    lines = list(pretty_lines(tree, with_shape=True))
    assert lines[:4] == [
        ">>> __main__: Model",
        "  > ((T1s2x8,),dict(mask:T1s2x1))",
        "  > ((T1s5x8,),dict(mask:T1s5x1))",
        "    >>> b1: Block",
    ]
    assert lines[-3:] == ["  < (T1s2x3,)", "  < (T1s5x3,)", "<<<"]
    assert "      >>> good: Good" not in lines
    assert "        >>> good: Good" in lines
    bare = list(pretty_lines(tree, with_inputs=False))
    assert [line.strip() for line in bare if ">>>" not in line] == ["<<<"] * 6
