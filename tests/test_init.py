from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import torchferry


@pytest.mark.parametrize("name", sorted(torchferry.__all__))
def test_every_public_name_is_found_and_documented(name: str) -> None:
    value = getattr(torchferry, name)
    # the older name of torch_export_patches is kept
    assert value.__name__ == name.replace("bypass_export_some_errors", "torch_export_patches")
    assert value.__doc__
    assert value.__module__.startswith("torchferry.")
    assert getattr(torchferry, name) is value


def test_a_public_name_is_the_one_of_its_room() -> None:
    for name, room in torchferry._HOME.items():
        module = importlib.import_module(room)
        assert name in getattr(module, "__all__", ())
        assert getattr(module, name) is getattr(torchferry, name)


def test_dir_lists_the_public_names() -> None:
    assert set(dir(torchferry)) == {*torchferry.__all__, "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'torchferry' has no attribute 'exprot'"):
        torchferry.exprot  # noqa: B018  (asking for it is the test)
    with pytest.raises(ImportError, match="cannot import name 'exprot'"):
        from torchferry import exprot  # noqa: F401  (asking for it is the test)


def test_errors_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys, torchferry as tf; tf.UsageError, tf.__version__, dir(tf);"
        "print({'torch', 'onnx', 'onnx_ir', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_name_works_after_a_star_import() -> None:
    scope: dict[str, object] = {}
    exec("from torchferry import *", scope)  # noqa: S102  (no other way inside a function)
    assert set(torchferry.__all__) <= set(scope)
