"""What torchferry runs with here, for ``torchferry inspect environment`` and bug reports."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

from torchferry.config import read_config
from torchferry.errors import UsageError
from torchferry.graph.runtime import Ability, lacking
from torchferry.optimizer.kernels.library import library_folder
from torchferry.report.model import Cell, Facts, Report, Section, Table
from torchferry.report.quantity import counted
from torchferry.seams.table import SEAMS, find
from torchferry.seams.versions import PACKAGES, TESTED, complaints, installed

__all__ = ["environment"]


def environment() -> Report:
    """Versions, what other libraries lack, providers, compiler, threads; and what is wrong."""
    wrong, versions = complaints(), {name: installed(name) for name in PACKAGES}
    missing = [name for name in SEAMS if not _is_there(name, versions)]
    absent, changed, failed = _operators()
    facts = _machine()
    wrong += failed
    tested = {name: " to ".join(dict.fromkeys(TESTED.get(name, ()))) for name in PACKAGES}
    packages = Table(
        ("package", "installed", "tested with"),
        tuple((name, here, tested[name]) for name, here in versions.items()),
    )
    gone = Table(
        ("missing", "needed for", "without it"),
        (
            *((name, SEAMS[name].purpose, SEAMS[name].without or "an error") for name in missing),
            *((name, "its lowering", "no model has it") for name in absent),
            *((name, "its lowering", change) for name, change in changed.items()),
        ),
    )
    sections = [
        Section("Versions", (packages,)),
        Section("Machine", (Facts(tuple(facts.items())),)),
    ]
    if gone.rows:
        sections.append(Section("Not in these versions", (gone,)))
    kernels = _kernels()
    if kernels:
        wrongs = tuple((ability.before, ability.since) for ability in kernels)
        table = Table(("kernels of onnxruntime", "right from"), wrongs)
        sections.append(Section("Minded where a model is made for this onnxruntime", (table,)))
    if wrong:
        rows = tuple((Cell(said, "bad"),) for said in wrong)
        sections.insert(0, Section("Wrong", (Table(("what to do",), rows),)))
    return Report(
        title="inspect environment",
        ok=True,
        verdict=f"{counted(len(wrong), 'problem')}, {counted(len(missing), 'name')} missing, "
        f"{counted(len(absent), 'operator')} absent",
        sections=tuple(sections),
        next_steps=("put this into a bug report: torchferry inspect environment --json FILE",),
        data={
            "kind": "environment", "versions": {"python": platform.python_version(), **versions},
            "machine": facts, "missing": missing, "absent": absent, "changed": changed,
            "kernels": [ability.before for ability in kernels], "problems": wrong,
        },
    )  # fmt: skip


def _is_there(name: str, versions: dict[str, str]) -> bool:
    if versions.get(name.split(".", maxsplit=1)[0]) == "not installed":
        return True  # of a library that is not used
    try:
        find(name)
    except LookupError:
        return False
    return True


def _operators() -> tuple[list[str], dict[str, str], list[str]]:
    """The operators that torch lacks, those whose schema is another, and why neither is known."""
    try:
        from torchferry.converter.lowering import absent, changed

        return sorted(absent()), dict(changed()), []
    except (ImportError, UsageError) as error:
        return [], {}, [" ".join(str(error).split())]


def _kernels() -> tuple[Ability, ...]:
    """List the kernels that the installed onnxruntime computes wrong."""
    version = installed("onnxruntime")
    return () if version == "not installed" else lacking(version)


def _machine() -> dict[str, str]:
    facts = {
        "Python": platform.python_version(),
        "system": platform.platform(),
        "CPUs": str(os.cpu_count()),
        "C compiler": _compiler(),
        "compiled kernels": f"{len([*library_folder().glob('*.so')])} in {library_folder()}",
    }
    for name, read in (("torch", _torch), ("onnxruntime", _onnxruntime)):
        try:
            facts |= read()
        except (ImportError, OSError) as error:
            facts[name] = f"cannot be imported: {error}"
    return facts


def _torch() -> dict[str, str]:
    import torch

    return {
        "vectors of torch": torch.backends.cpu.get_cpu_capability(),
        "threads of torch": str(torch.get_num_threads()),
        "CUDA of torch": str(torch.version.cuda or "none"),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def _onnxruntime() -> dict[str, str]:
    import onnxruntime

    return {"providers of onnxruntime": ", ".join(onnxruntime.get_available_providers())}


def _compiler() -> str:
    program = shutil.which(read_config().compiler)
    if program is None:
        return f"none called {read_config().compiler}"
    # The user's own compiler, by the name that kernels are compiled with.
    done = subprocess.run(  # noqa: S603
        [program, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return f"{program}: {(done.stdout or done.stderr).partition(chr(10))[0].strip()}"
