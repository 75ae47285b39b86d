"""What a capture tells: attempts, patches, rewritten code."""

from dataclasses import replace

from torchferry.capturer import Attempt, patch_rows
from torchferry.capturer.state.state import Change
from torchferry.exporter.tell import outcome
from torchferry.exporter.tell.strategy import capture_data, capture_sections
from torchferry.report.model import Cell


def test_attempts_that_failed_say_why(walked):
    attempts = (Attempt("non-strict", "UserError: no"), Attempt("strict", None))
    (section,) = capture_sections(replace(walked.findings.captured, attempts=attempts))
    assert section.title == "Capture"
    assert section.blocks[0].rows == (
        ("non-strict", Cell("failed", "bad"), "UserError: no"),
        ("strict", Cell("worked", "good"), ""),
    )


def test_patches_and_rewritten_code_are_shown(walked):
    patch = patch_rows()[0]
    captured = replace(
        walked.findings.captured, patches=(patch.subject,), rewritten="-if x:\n+torch.cond(x)",
        declined=("m.py:3: for row in x:: only",),
    )  # fmt: skip
    sections = {section.title: section.blocks[0] for section in capture_sections(captured)}
    assert sections["Patches"].rows[0] == (patch.subject, patch.why, patch.link)
    assert "torch.cond" in sections["Rewritten"].text
    assert sections["Not rewritten"].rows == (("m.py:3: for row in x:: only",),)
    data = capture_data(captured)
    assert data["patches"] == [patch.subject]
    assert data["rewritten"] == captured.rewritten


def test_an_attribute_that_forward_changes_is_a_problem_of_the_export(walked):
    captured = replace(walked.findings.captured, changed=(Change("n", "1", "2"),))
    report = outcome.report(replace(walked.findings, captured=captured), "M")
    assert not report.ok
    assert "self.n from 1 to 2" in report.problems[0]
    assert report.data["changed"] == [{"name": "n", "before": "1", "after": "2"}]
