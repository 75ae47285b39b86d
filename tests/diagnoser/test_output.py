from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser import (
    CustomOpStrategy,
    ModelDiagnoseOutput,
    trace_execution_piece_by_piece,
    trace_forward_execution,
)
from torchferry.errors import UsageError

REASON = "'Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size"
pytestmark = pytest.mark.usefixtures("untouched")


def codes(tree: ModelDiagnoseOutput) -> dict[str, str]:
    """What became of each module; nothing of those that were not tried."""
    return {
        piece.path: str(piece.exporter_status.status)
        for piece in tree.walk()
        if piece.exporter_status is not None
    }


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            CustomOpStrategy.NONE,
            {"": "FAIL", "b1": "FAIL", "b1.good": "OK", "b1.bad": "FAIL", "head": "OK"},
        ),
        (
            CustomOpStrategy.ONLY_IF_FAILING,
            {"": "OK_CHILDC", "b1": "OK_CHILDC", "b1.good": "OK", "b1.good.lin": "OK",
             "b1.bad": "FAIL", "head": "OK"},
        ),
        (
            CustomOpStrategy.LOCAL,
            {"": "OK_CHILDC", "b1": "OK_CHILDC", "b1.good": "OK_CHILDC", "b1.good.lin": "OK",
             "b1.bad": "FAIL", "head": "OK"},
        ),
        (
            True,
            dict.fromkeys(("", "b1", "b1.good", "b1.good.lin", "b1.bad", "head"), "OK_CUSTOM"),
        ),
        (
            {"Bad": CustomOpStrategy.ALWAYS},
            {"": "OK_CHILDC", "b1": "OK_CHILDC", "b1.good": "OK", "b1.bad": "OK_CUSTOM",
             "head": "OK"},
        ),
    ],
)  # fmt: skip
def test_each_strategy_gives_the_known_codes(
    tree: ModelDiagnoseOutput, strategy: Any, expected: dict[str, str]
) -> None:
    status = tree.try_export(replace_by_custom_op=strategy)
    assert codes(tree) == expected
    assert status is tree.exporter_status


def test_the_report_is_the_known_one_with_each_reason_once(tree: ModelDiagnoseOutput) -> None:
    assert tree.get_export_report().splitlines()[0] == "__main__    Model    <OK-2i-0>"
    tree.try_export(replace_by_custom_op=CustomOpStrategy.ONLY_IF_FAILING)
    report = tree.get_export_report()
    assert [line for line in report.splitlines() if "bad" not in line] == [
        "__main__    Model    OK_CHILDC -- ExportedProgram",
        "..b1        Block    OK_CHILDC -- ExportedProgram",
        "....good    Good     OK -- ExportedProgram",
        "......lin   Linear   OK -- ExportedProgram",
        "..head      Linear   OK -- ExportedProgram",
    ]
    assert f"....bad     Bad      FAIL -- step=EXPORT, reason={REASON}" in report
    assert report.count("data-dependent") == 1
    tree.try_export()
    report = tree.get_export_report()
    assert report.count("data-dependent") == 1
    assert report.count("reason='because of b1.bad'") == 2


def test_the_report_can_show_what_was_exported(tree: ModelDiagnoseOutput) -> None:
    tree.children[1].try_export()
    assert "ep:ExportedProgram:" in tree.get_export_report(exported_program=True)
    report = tree.get_export_report(fx=True)
    assert "fx:graph():" in report
    assert "ep:" not in report


def test_the_smallest_piece_is_named_with_its_line_and_what_to_do(
    tree: ModelDiagnoseOutput,
) -> None:
    tree.try_export(replace_by_custom_op=CustomOpStrategy.ONLY_IF_FAILING)
    bad = tree.children[0].children[1]
    assert bad.exporter_status is not None
    assert "if x.sum() > 0:" in str(bad.exporter_status.line)
    assert "torch.cond" in bad.exporter_status.advice
    assert bad.last_error is not None
    assert tree.exporter_status is not None
    assert tree.exporter_status.blame == ("b1.bad",)


@pytest.mark.parametrize(
    "exporter", ["to_onnx", pytest.param("onnx_dynamo", marks=pytest.mark.slow)]
)
def test_onnx_exporters_find_the_same_piece(tree: ModelDiagnoseOutput, exporter: str) -> None:
    tree.try_export(exporter, replace_by_custom_op=CustomOpStrategy.ONLY_IF_FAILING)
    assert codes(tree) == {
        "": "OK_CHILDC", "b1": "OK_CHILDC", "b1.good": "OK", "b1.good.lin": "OK",
        "b1.bad": "FAIL", "head": "OK",
    }  # fmt: skip
    assert {piece.exporter for piece in tree.walk()} == {exporter}


def test_torch_script_does_not_keep_a_branch_for_good(tree: ModelDiagnoseOutput) -> None:
    tree.try_export("torch_script", replace_by_custom_op=CustomOpStrategy.ONLY_IF_FAILING)
    assert codes(tree) == {
        "": "OK_CHILDC", "b1": "OK_CHILDC", "b1.good": "OK", "b1.good.lin": "OK",
        "b1.bad": "FAIL", "head": "OK",
    }  # fmt: skip
    (bad,) = [piece for piece in tree.walk() if piece.path == "b1.bad"]
    assert bad.exporter_status is not None
    assert str(bad.exporter_status.line).endswith("if x.sum() > 0:")
    assert "torch.cond" in bad.exporter_status.advice


def test_a_model_that_raises_on_its_own_inputs_is_told_with_the_module() -> None:
    class Boom(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("boo")

    with pytest.raises(
        UsageError, match=r"input set 1 of 1: module 1 \(Boom\) raises KeyError: 'boo'"
    ):
        trace_execution_piece_by_piece(nn.Sequential(nn.ReLU(), Boom()), [(torch.ones(2),)])


def test_a_healthy_model_is_ok() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    tree = trace_execution_piece_by_piece(model, [(torch.rand(n, 4),) for n in (2, 5)])
    tree.try_export(replace_by_custom_op=CustomOpStrategy.ONLY_IF_FAILING)
    assert codes(tree) == {"": "OK", "0": "OK", "1": "OK"}


def test_dynamic_shapes_are_those_of_the_piece(tree: ModelDiagnoseOutput) -> None:
    dynamic = {0: torch.export.Dim.DYNAMIC}
    assert tree.guess_dynamic_shapes() == ((dynamic,), {"mask": dynamic})
    assert tree.children[0].children[1].guess_dynamic_shapes() == ((dynamic, dynamic), {})
    text = tree.pretty_text(with_dynamic_shape=True)
    assert text.splitlines()[1] == (
        "  DS=(({0: DimHint(DYNAMIC)},), {'mask': {0: DimHint(DYNAMIC)}})"
    )
    assert ":A" not in text
    assert "CT1s2x8[" in tree.pretty_text(with_min_max=True, with_device=True)


def test_a_module_is_replaced_in_place_and_restored(
    tree: ModelDiagnoseOutput, model: nn.Module
) -> None:
    bad = tree.children[0].children[1]
    x, mask = torch.rand(3, 8), torch.rand(3, 1)
    expected = model(x, mask=mask)
    bad.put_custom_op_inplace()
    try:
        with pytest.raises(UsageError, match="replaced already"):
            bad.put_custom_op_inplace()
        assert torch.equal(model(x, mask=mask), expected)
        program = torch.export.export(model, (x, mask))
        assert "diag_lib.C_Model_b1_bad" in str(program.graph)
    finally:
        bad.remove_custom_op_inplace()
    bad.remove_custom_op_inplace()  # nothing happens
    assert torch.equal(model(x, mask=mask), expected)


def test_shapes_of_outputs_follow_from_inputs(tree: ModelDiagnoseOutput) -> None:
    head, bad = tree.children[1], tree.children[0].children[1]
    assert bad.build_shape_mapping_indices() == [(0, torch.float32, None)]
    ((places, dtype, function),) = head.build_shape_mapping_indices()
    assert (places, dtype) == ((0,), torch.float32)
    assert function is not None
    assert function(torch.zeros(7, 8)).shape == (7, 3)
    assert head.determine_shape_fct(0)(torch.zeros(9, 8)).shape == (9, 3)
    with pytest.raises(UsageError, match="there is none 1"):
        head.determine_shape_fct(1)


def test_what_is_exported_is_told_when_asked_for(
    tree: ModelDiagnoseOutput, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.children[1].try_export()
    assert capsys.readouterr().out == ""
    tree.children[1].try_export(verbose=1)
    assert capsys.readouterr().out == "[torchferry] head: OK -- ExportedProgram\n"


def test_an_interruption_leaves_the_model_as_it_was(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    tree.try_export()
    monkeypatch.setattr(torch.export, "export", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tree.try_export(replace_by_custom_op=CustomOpStrategy.LOCAL)
    assert codes(tree) == {}  # what was found before is gone


def test_the_first_failure_is_raised_when_it_is_to_be(tree: ModelDiagnoseOutput) -> None:
    with pytest.raises(Exception, match="data-dependent"):
        tree.try_export(quiet=False)
    with pytest.raises(UsageError, match="choose one of fx"):
        tree.try_export("onnx")
    with pytest.raises(UsageError, match="did you mean"):
        tree.try_export(replace_by_custom_op={"Badd": CustomOpStrategy.ALWAYS})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "give two or more"),
        ({"x": torch.zeros(1)}, "one set is"),
        (torch.zeros(1), "one set is"),
        ([(torch.zeros(2, 8), 1, 2, 3)], "does not fit"),
        ([3], "give a tuple"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(model: nn.Module, inputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trace_execution_piece_by_piece(model, inputs)


def test_calls_are_recorded_whoever_makes_them(model: nn.Module) -> None:
    with trace_forward_execution(model) as tree:
        model(torch.rand(2, 8), torch.rand(2, 1))
    assert [len(piece.calls) for piece in tree.walk()] == [1] * 6
    model(torch.rand(2, 8), torch.rand(2, 1))
    assert len(tree.calls) == 1
