import contextlib
import logging
import runpy
from pathlib import Path

import pytest
import torch

from torchferry.capturer.watch import (
    ShapeEvents,
    line_of_error,
    modules_through,
    raising_module,
    watch_shapes,
)  # fmt: skip

LOGGER = logging.getLogger("torch.fx.experimental.symbolic_shapes")
DYNAMIC = torch.export.Dim.DYNAMIC


class Through(torch.nn.Module):
    """Reaches torch through the standard library, and fixes a size."""

    @torch.no_grad()
    def forward(self, x, y):
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: x.expand(3, 2))  # through
        return x, y + 1


def line(mark):
    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))
    return f"{__file__}:{number}: {lines[number - 1].strip()}"


def handlers():
    found, logger = [], LOGGER
    while logger is not None:
        found += [(id(handler), handler.level) for handler in logger.handlers]
        logger = logger.parent if logger.propagate else None
    return found


def test_the_line_is_the_innermost_of_the_user_not_of_the_standard_library():
    with watch_shapes() as events, contextlib.suppress(ValueError, torch._dynamo.exc.UserError):
        torch.export.export(
            Through(),
            (torch.ones(3, 2), torch.ones(4)),
            dynamic_shapes={"x": {0: DYNAMIC}, "y": {0: DYNAMIC}},
        )
    assert events.line_of(("x",), 0) == line("through")
    assert events.line_of(("y",), 0) is None
    assert events.line_of(("z",), 0) is None


def test_what_torch_does_on_its_own_account_has_no_line():
    with watch_shapes() as events:
        LOGGER.info("create_symbol s0 = 3 for L['x'].size()[0] [2, int_oo]")
        LOGGER.info("eval Eq(s0, 3) [guard added]")  # who calls is this test
    assert events.places == {"L['x'].size()[0]": "s0"}
    assert events.lines["s0"] == line("who calls is this test")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("L['x']", ("x",)),
        ("L['d']['two words'][0]", ("d", "two words", 0)),
        ("L['d'][3].left", ("d", 3, "left")),
        ("L['cache']['key_cache'][11]", ("cache", "key_cache", 11)),
    ],
)
def test_places_are_understood_as_torch_writes_them(source, path):
    events = ShapeEvents({f"{source}.size()[2]": "s7"}, {"s7": "a.py:1: x"})
    assert events.line_of(path, 2) == "a.py:1: x"
    assert events.line_of(path, 1) is None
    assert events.line_of((*path, "more"), 2) is None


@pytest.mark.parametrize("level", [logging.NOTSET, logging.WARNING, logging.DEBUG])
def test_logging_is_as_before_afterwards(level):
    before_level = LOGGER.level
    LOGGER.setLevel(level)
    try:
        before = LOGGER.level, list(LOGGER.handlers), handlers()
        with pytest.raises(ZeroDivisionError), watch_shapes():
            raise ZeroDivisionError
        assert (LOGGER.level, list(LOGGER.handlers), handlers()) == before
    finally:
        LOGGER.setLevel(before_level)


def test_nothing_is_shown_unless_it_was_asked_for(capfd):
    with watch_shapes():
        LOGGER.info("quiet")
        LOGGER.warning("quiet")
    assert capfd.readouterr() == ("", "")


def test_what_was_asked_for_is_shown():
    shown = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())
    before = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)  # as TORCH_LOGS=dynamic does
    try:
        with watch_shapes():
            LOGGER.info("asked for")
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
    assert shown == ["asked for"]


def test_the_line_of_an_error_is_the_users():
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2) + torch.ones(3)  # fails
    assert line_of_error(caught.value) == line("fails")
    assert line_of_error(ValueError("never raised")) is None


def test_the_module_that_raises_is_the_innermost_one_of_the_model():
    inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))
    model = torch.nn.Sequential(torch.nn.Identity(), inner)
    with pytest.raises(RuntimeError) as raised:
        model(torch.ones(1, 3))
    assert [*modules_through(raised.value)][-1] is inner[1]
    assert raising_module(raised.value, model) == "1.1"
    assert raising_module(raised.value, inner[1]) == ""
    assert raising_module(raised.value, torch.nn.ReLU()) == ""


def test_lines_of_packages_that_torch_calls_are_none_of_the_users(tmp_path):
    for package, told in (("onnxruntime", False), ("onnx", False), ("transformers", True)):
        file = tmp_path / "site-packages" / package / "session.py"
        assert (line_of_error(raised_in(file)) == f"{file}:1: raise ValueError('no')") is told
    own = tmp_path / "onnx" / "model.py"
    assert line_of_error(raised_in(own)) == f"{own}:1: raise ValueError('no')"


def raised_in(file):
    file.parent.mkdir(parents=True)
    file.write_text("raise ValueError('no')", "utf-8")
    with pytest.raises(ValueError, match="no") as caught:
        runpy.run_path(str(file))
    return caught.value
