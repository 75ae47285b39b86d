from __future__ import annotations

import logging
import sys
import warnings

import pytest

from torchferry.diagnoser.trial.quiet import quiet, telling

LOG = logging.getLogger("torchferry")


def test_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        warnings.warn("one", UserWarning, stacklevel=1)
        sys.stdout.write("two")
        sys.stderr.write("three")
        logging.getLogger("torch.export").error("four")
    assert capsys.readouterr() == ("", "")
    sys.stdout.write("after")
    assert capsys.readouterr().out == "after"


def test_the_log_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    before = (LOG.level, list(LOG.handlers))
    for verbose, shown in ((0, ""), (1, "[torchferry] told\n")):
        with telling(verbose):
            LOG.info("told")
            LOG.debug("not told")
        assert capsys.readouterr().out == shown
    assert (LOG.level, list(LOG.handlers)) == before
