import re
import tomllib
from pathlib import Path

import onnxruntime
import torch

from torchferry.seams.versions import TESTED, installed, numbers

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]


def test_the_lower_ends_are_those_that_the_project_declares():
    extra = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    declared = dict(
        re.match(r"([\w-]+)>=([\d.]+)", line).groups()
        for line in [*PROJECT["dependencies"], *extra]
        if ">=" in line
    )
    assert {name: low for name, (low, _) in TESTED.items()} == {n: declared[n] for n in TESTED}


def test_what_is_installed_is_read_without_importing_it():
    assert installed("torch").split("+")[0] == torch.__version__.split("+")[0]
    assert installed("onnxruntime") == onnxruntime.__version__
    assert installed("no-such-package") == "not installed"


def test_versions_compare_as_numbers():
    assert numbers("2.14.1+cu130") == (2, 14)
    assert numbers("2.9") < numbers("2.11.0") < numbers("2.14")
    assert numbers("3.0.0.dev2026") > numbers("2.14")
    assert numbers("2.15.0a0+git") == (2, 15)
