from __future__ import annotations

import pytest

from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode


def test_codes_have_the_known_values_and_names() -> None:
    values = {c.name: c.value for c in StatusExportCode}
    assert (
        values | {"OK": 1, "FAIL": 2, "CHILDC": 4, "CUSTOM": 8, "DISC": 16, "NOINPUT": 32}
        == values
    )
    for names, text in (
        (("OK", "CHILDC"), "OK_CHILDC"),
        (("OK", "CUSTOM"), "OK_CUSTOM"),
        (("FAIL", "CHILDC"), "FAIL_CHILDC"),
        (("FAIL", "DISC"), "FAIL_DISC"),
        (("FAIL", "NOINPUT"), "FAIL_NOINPUT"),
        (("FAIL", "CHILDC", "DISC"), "FAIL_CHILDC_DISC"),
    ):
        code = StatusExportCode.NONE
        for name in names:
            code |= StatusExportCode[name]
        assert str(code) == text


def test_codes_are_taken_away_one_by_one() -> None:
    code = StatusExportCode.FAIL | StatusExportCode.CHILDC | StatusExportCode.DISC
    assert code.remove(StatusExportCode.CHILDC) == StatusExportCode.FAIL_DISC
    assert code.remove(StatusExportCode.OK) == code
    assert (code & StatusExportCode.DISC) == StatusExportCode.DISC


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (StatusExport(StatusExportCode.OK, made="ExportedProgram"), "OK -- ExportedProgram"),
        (StatusExport(StatusExportCode.NOINPUT), "NOINPUT"),
        (
            StatusExport(StatusExportCode.FAIL, "EXPORT", "\n  first \nsecond"),
            "FAIL -- step=EXPORT, reason='first'",
        ),
        (
            StatusExport(StatusExportCode.FAIL, "EVAL", "x" * 101),
            f"FAIL -- step=EVAL, reason='{'x' * 100}...'",
        ),
        (StatusExport(StatusExportCode.FAIL, "EVAL", ""), "FAIL -- step=EVAL, reason=''"),
    ],
)
def test_a_status_is_one_line(status: StatusExport, text: str) -> None:
    assert status.pretty_text() == text


def test_ok_and_failed_are_not_each_other() -> None:
    for code, ok, failed in (
        (StatusExportCode.OK_CHILDC, True, False),
        (StatusExportCode.FAIL_CHILDC, False, True),
        (StatusExportCode.NOINPUT, False, False),
    ):
        assert (StatusExport(code).is_ok(), StatusExport(code).failed) == (ok, failed)
