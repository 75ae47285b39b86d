"""Which versions of other libraries are installed, and which ones torchferry was tested with.

Nothing is imported: the metadata of packages says all of it.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

__all__ = ["PACKAGES", "TESTED", "complaints", "installed", "numbers", "torchvision_complaint"]

# The oldest and the newest minor version; pyproject.toml declares the same lower ends.
TESTED = {
    "torch": ("2.11", "2.14"),
    "transformers": ("4.57", "5.24"),
    "onnxruntime": ("1.25", "1.32"),
    "onnx": ("1.19", "1.23"),
    "onnx-ir": ("1.1", "1.1"),
    "onnxscript": ("0.7", "0.7"),
}
PACKAGES = ("torchferry", *TESTED, "numpy", "torchvision")
# One module, several packages: the others are for a kind of device.
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
_NONE = "not installed"


def installed(package: str) -> str:
    """The installed version of a package, ``not installed`` when it is not.

    >>> installed("no-such-package")
    'not installed'
    """
    for name in _RUNTIMES if package == "onnxruntime" else (package,):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return _NONE


def numbers(text: str) -> tuple[int, ...]:
    """Major and minor version as numbers, to be compared.

    >>> numbers("2.14.1+cu130") < numbers("2.9")
    False
    """
    parts = text.partition("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def complaints() -> list[str]:
    """What is wrong with what is installed, a sentence each, with the command that helps."""
    found = [_out_of_range(package) for package in TESTED]
    found += [_two_runtimes(), _without_cuda(), torchvision_complaint()]
    return [said for said in found if said]


def _out_of_range(package: str) -> str:
    here, (low, high) = installed(package), TESTED[package]
    if here == _NONE or numbers(low) <= numbers(here) <= numbers(high):
        return ""
    if numbers(here) < numbers(low):
        return (
            f"{package} {here} is older than {low}, the oldest that torchferry was tested with: "
            f'pip install -U "{package}>={low}"'
        )
    return (
        f"{package} {here} is newer than {high}, the newest that torchferry was tested with: "
        f'if something fails, pip install "{package}<={high}.99" or a newer torchferry'
    )


def _two_runtimes() -> str:
    names = [name for name in _RUNTIMES if _version(name)]
    if len(names) < 2:
        return ""
    said = " and ".join(f"{name} {_version(name)}" for name in names)
    return (
        f"{said} are installed over each other, and only one of them can work: "
        f"pip uninstall -y {' '.join(names)}, then pip install the one for your device"
    )


def _without_cuda() -> str:
    torch, runtime = _version("torch"), _version("onnxruntime-gpu")
    if not runtime or not torch.endswith("+cpu"):
        return ""
    return (
        f"onnxruntime-gpu {runtime} is installed beside torch {torch}, which has no CUDA, so that "
        "models are watched and compared on the CPU: pip install a torch with CUDA "
        "(https://pytorch.org/get-started/locally), or onnxruntime instead of onnxruntime-gpu"
    )


def torchvision_complaint() -> str:
    """A sentence if torchvision was built for another torch, and so cannot be imported."""
    here, torch = _version("torchvision"), _version("torch").partition("+")[0]
    for line in (requires("torchvision") or ()) if here else ():
        wanted = re.match(r"torch\s*\(?==\s*([\d.]+)", line)
        if wanted is not None and torch and wanted[1] != torch:
            return (
                f"torchvision {here} was built for torch {wanted[1]}, and torch {torch} is "
                f'installed: pip install -U torchvision "torch=={torch}", from one index'
            )
    return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
