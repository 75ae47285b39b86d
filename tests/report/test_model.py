from __future__ import annotations

import dataclasses

import pytest

import torchferry.report
from torchferry.report import Cell, Report, model


def test_the_room_gives_all_of_the_model():
    assert set(torchferry.report.__all__) == set(model.__all__)


def test_a_report_needs_only_title_outcome_and_verdict():
    report = Report("t", True, "v")
    assert (report.sections, report.problems, report.next_steps) == ((), (), ())
    assert report.data == {}


def test_blocks_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cell("a").text = "b"
