from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchferry.values.line import line_here, user_line

TORCH = str(Path(torch.__file__).parent)


def frame(file, line):
    return f'File "{file}", line {line}, in forward\n    x = x + 1'


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (None, None),
        ("", None),
        ("no frames here", None),
        (frame("/me/model.py", 3), "/me/model.py:3"),
        (frame("/me/model.py", 3) + "\n" + frame("/me/layer.py", 5), "/me/layer.py:5"),
        (frame("/me/model.py", 3) + "\n" + frame(f"{TORCH}/nn/x.py", 5), "/me/model.py:3"),
        (frame(f"{TORCH}/nn/x.py", 5), None),
        (frame(f"{TORCH}vision/ops.py", 5), f"{TORCH}vision/ops.py:5"),
    ],
)
def test_the_users_line_is_the_innermost_that_is_not_torchs(trace, line):
    assert user_line(trace) == line


def test_the_running_line_is_the_callers() -> None:
    def tells() -> str | None:
        return line_here()

    line = tells()
    assert line is not None
    assert line.rpartition(":")[0] == __file__
