import re
import tomllib
from pathlib import Path

import onnxruntime
import pytest
import torch

from torchferry.seams import versions
from torchferry.seams.versions import TESTED, complaints, installed, numbers, torchvision_complaint

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


@pytest.fixture
def packages(monkeypatch):
    """``packages(name=version, ...)``: only these are installed, dashes being underscores."""

    def install(requires=(), **given):
        here = {name.replace("_", "-"): version for name, version in given.items()}

        def version(name):
            if name not in here:
                raise versions.PackageNotFoundError(name)
            return here[name]

        monkeypatch.setattr(versions, "version", version)
        monkeypatch.setattr(versions, "requires", lambda _: list(requires))

    return install


GOOD = {"torch": "2.13.0+cpu", "onnxruntime": "1.32.0", "transformers": "5.24.0"}


def test_nothing_is_wrong_with_what_is_tested(packages):
    packages(**GOOD, torchvision="0.28.0", requires=["numpy", "torch==2.13.0"])
    assert complaints() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"torch": "2.9.1"}, 'torch 2.9.1 is older than 2.11, .*pip install -U "torch>=2.11"'),
        ({"torch": "3.0.0.dev1"}, 'newer than 2.14, .* if .* fails, pip install "torch<=2.14.99"'),
        ({"transformers": "4.40.0"}, "transformers 4.40.0 is older than 4.57"),
        (
            {"onnxruntime_gpu": "1.32.0", "onnxruntime": None},
            r"onnxruntime-gpu 1.32.0 is installed beside torch 2.13.0\+cpu, which has no CUDA",
        ),
        (
            {"onnxruntime_gpu": "1.31.0", "torch": "2.13.0"},
            "onnxruntime 1.32.0 and onnxruntime-gpu 1.31.0 .* uninstall -y onnxruntime onnxr",
        ),
        (
            {"torchvision": "0.29.1", "requires": ["numpy", "torch (==2.14.1)"]},
            'torchvision 0.29.1 was built for torch 2.14.1, and torch 2.13.0 .*"torch==2.13.0"',
        ),
    ],
)
def test_one_sentence_names_versions_and_the_command_that_helps(given, words, packages):
    packages(**{k: v for k, v in {**GOOD, **given}.items() if v is not None})
    (said,) = complaints()
    assert re.search(words, said)
    assert "pip install" in said
    assert "\n" not in said


def test_torchvision_here_is_built_for_the_torch_that_is_here():
    assert torchvision_complaint() == ""


def test_packages_for_a_device_count_as_onnxruntime(packages):
    packages(onnxruntime_gpu="1.30.0")
    assert installed("onnxruntime") == "1.30.0"
