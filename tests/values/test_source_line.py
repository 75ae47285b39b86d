import pathlib
import sysconfig

import pytest
import torch

from torchferry.values import source_line
from torchferry.values.source_line import (
    LIMIT,
    innermost_place,
    is_library,
    is_own,
    line_here,
    package_of,
    shown_line,
    user_line,
)

PACKAGES = "/env/lib/python3.11/site-packages"


def test_code_is_read_from_the_file_and_cut(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(f"x = 1\n    y = {'1 + ' * 60}1\n", "utf-8")
    assert shown_line(str(file), 1) == f"{file}:1: x = 1"
    code = shown_line(str(file), "2").removeprefix(f"{file}:2: ")
    assert len(code) <= LIMIT
    assert code.startswith("y = 1 + 1")
    assert code.endswith("…")
    assert shown_line(str(file), 9) == f"{file}:9"
    assert shown_line("a.py", 1, " b ") == "a.py:1: b"


def test_whose_code_a_file_is():
    standard = sysconfig.get_path("stdlib")
    assert package_of(f"{PACKAGES}/timm/layers/a.py:3: x") == "timm"
    assert package_of(f"{PACKAGES}/six.py:3: x") == "six"
    assert package_of(f"{torch.__file__}:3") == "torch"
    assert package_of(f"{standard}/random.py") == "Python"
    assert package_of(None) == package_of("/home/me/model.py:3: x") == ""
    libraries = [
        torch.__file__,
        f"{standard}/random.py",
        "<eval_with_key>.3",
        f"{PACKAGES}/onnx/a.py",
    ]
    assert all(map(is_library, libraries))
    assert not any(map(is_library, [f"{PACKAGES}/transformers/a.py", "/home/me/model.py"]))
    assert is_own(source_line.__file__)
    assert not is_own("/home/me/torchferry.py")


def test_the_innermost_place_is_no_library_s_and_not_ours():
    def printed(*files):
        return "\n".join(f'  File "{file}", line {n}, in f\n    x' for n, file in enumerate(files))

    own = source_line.__file__
    generated = "<eval_with_key>.27"
    assert innermost_place(printed("/a.py", "/b.py", torch.__file__, generated)) == ("/b.py", "1")
    assert innermost_place(printed("/a.py", own, torch.__file__)) is None
    assert innermost_place(printed(torch.__file__)) is None
    assert innermost_place(None) is None


TORCH = str(pathlib.Path(torch.__file__).parent)


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
