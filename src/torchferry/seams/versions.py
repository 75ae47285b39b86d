"""Which versions of other libraries are installed, and which ones torchferry was tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["TESTED", "installed", "numbers"]

# The oldest and the newest minor version; pyproject.toml declares the same lower ends.
TESTED = {
    "torch": ("2.11", "2.14"),
    "transformers": ("4.56", "5.24"),
    "onnxruntime": ("1.24", "1.32"),
    "onnx": ("1.19", "1.23"),
    "onnx-ir": ("1.1", "1.1"),
    "onnxscript": ("0.7", "0.7"),
}


def installed(package: str) -> str:
    """The installed version of a package, ``not installed`` when it is not; nothing is imported.

    >>> installed("no-such-package")
    'not installed'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def numbers(text: str) -> tuple[int, ...]:
    """Major and minor version as numbers, to be compared.

    >>> numbers("2.14.1+cu130") < numbers("2.9")
    False
    """
    parts = text.partition("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())
