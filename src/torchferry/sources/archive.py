"""Exported programs from ``.pt2`` files, without unpickling.

``torch.export.load`` (2.13) unpickles three kinds of entries: weights and constants marked
``use_pickle``, custom objects among the constants, and example inputs that its restricted
loader (``weights_only=True``) declines. It also gives size expressions to ``sympy.sympify``, which
evaluates them as Python. All of these are looked at first, with PyTorch's own reader of the
archive, and a file that holds any of them is refused; only then is it loaded.

What remains of trust: names of operators and of pytree classes in the file are looked up among
what is installed, and the program runs when it is called, as any model does.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive import constants as layout

from torchferry.errors import UsageError
from torchferry.values.flatten import register_pytrees
from torchferry.values.kinds import MODULES_A_FILE_MAY_NAME, attempt
from torchferry.zoo.library import import_transformers

__all__ = ["load_program"]

_CACHE_CLASSES = frozenset(
    f"transformers.cache_utils.{name}"
    for name in (
        "DynamicCache",
        "DynamicLayer",
        "DynamicSlidingWindowLayer",
        "EncoderDecoderCache",
        "StaticCache",
        "StaticLayer",
        "StaticSlidingWindowLayer",
    )
)
"""Plain holders of tensors: rebuilding them runs no code but their own."""

_NAME = re.compile(r"\b(Symbol|Float)\('[\w.]+'")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NOT_ARITHMETIC = re.compile(r"__|['\"\[\]{}:;@\\#]|[A-Za-z_)]\s*\.|\.\s*[A-Za-z_]")
_FUNCTIONS = frozenset({"floor", "ceiling", "sqrt", "exp", "log"})


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Load a program that ``torch.export.save`` wrote.

    Args:
        path: the file; it is refused when reading it would unpickle or run anything.

    Raises:
        UsageError: there is no such file, it is no such archive, it is damaged, or unsafe.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    reasons: list[BaseException] = []
    error: BaseException | None
    try:
        program, error = attempt(_read, path, reasons)
    except RecursionError as deep:  # brackets in brackets
        program, error = None, deep
    if error is None:
        return cast("torch.export.ExportedProgram", program)
    if isinstance(error, UsageError):
        raise error
    first = str((reasons or [error])[0]).strip().partition("\n")[0][:200]
    raise UsageError(
        f"{path} cannot be read as a program saved by torch.export.save: {first}\n"
        f"Save it again with this PyTorch ({torch.__version__})"
    ) from error


def _read(path: Path, reasons: list[BaseException]) -> torch.export.ExportedProgram:
    """Load what has been looked at; of a damaged file torch may raise anything."""
    with PT2ArchiveReader(str(path)) as archive:
        permitted = _check(archive, path)
    with permitted, _quiet(reasons):
        return torch.export.load(path)


@contextmanager
def _quiet(reasons: list[BaseException]) -> Iterator[None]:
    """Keep what torch.export.load logs with a traceback, and then raises without a word of."""

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            reasons.append(record.exc_info[1])
        return not record.exc_info

    logger = logging.getLogger("torch.export")
    logger.addFilter(keep)
    try:
        with warnings.catch_warnings():
            # torch 2.12 maps the weights, and warns of writing to what nobody writes to.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            yield
    finally:
        logger.removeFilter(keep)


def _check(archive: PT2ArchiveReader, path: Path) -> AbstractContextManager[Any]:
    """Refuse what could run code; return the context in which its example inputs load."""
    names = archive.get_file_names()
    for name in names:
        if name.startswith(layout.AOTINDUCTOR_DIR):
            raise UsageError(f"{path} holds compiled code ({name}); give the exported program")
        if name.startswith((layout.WEIGHTS_DIR, layout.CONSTANTS_DIR)):
            _check_payload(archive, name, path)
        if name.startswith(layout.MODELS_DIR):
            program = archive.read_bytes(name)
            for expression in _expressions(json.loads(program)):
                _check_expression(expression, path)
            _register_classes(program.decode(), path)
    inputs = [archive.read_bytes(n) for n in names if n.startswith(layout.SAMPLE_INPUTS_DIR)]
    return _check_example_inputs([data for data in inputs if data], path)


def _register_classes(program: str, path: Path) -> None:
    """Import transformers' modules that the program names: their outputs register themselves."""
    named = rf"\b({MODULES_A_FILE_MAY_NAME})\.[A-Z]"
    modules = sorted(set(re.findall(named, program)))
    if modules:
        import_transformers(str(path))
        for module in modules:
            with suppress(ImportError):  # then the class is missing, which torch says by name
                importlib.import_module(module)
        register_pytrees()


def _check_payload(archive: PT2ArchiveReader, name: str, path: Path) -> None:
    """Refuse weights and constants that are pickled."""
    if name.endswith(".pt"):
        raise UsageError(f"{path} is of an older format that pickles {name}; save it again")
    if not name.endswith("_config.json"):
        return
    for entry, payload in json.loads(archive.read_bytes(name))["config"].items():
        prefix = (layout.WEIGHT_FILENAME_PREFIX, layout.TENSOR_CONSTANT_FILENAME_PREFIX)
        if payload["use_pickle"] is not False or not payload["path_name"].startswith(prefix):
            raise UsageError(
                f"{path} holds a pickled object, {entry!r}, which torchferry never unpickles; "
                "export the model with plain tensors, or give package.module:factory"
            )


def _check_example_inputs(inputs: list[bytes], path: Path) -> AbstractContextManager[Any]:
    """Load the example inputs as PyTorch will, and refuse them when that would unpickle."""
    unknown: set[str] = set()
    for data in inputs:
        unknown |= set(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data)))
    foreign = sorted(unknown - _CACHE_CLASSES)
    if foreign:
        raise UsageError(
            f"{path} holds example inputs with pickled objects ({', '.join(foreign)}), "
            "which torchferry never unpickles; set program.example_inputs = None before "
            "torch.export.save, and give inputs with --inputs FILE.py:function"
        )
    permitted: AbstractContextManager[Any] = nullcontext()
    if unknown:
        caches = import_transformers(str(path)).cache_utils
        permitted = torch.serialization.safe_globals(
            [getattr(caches, name.rpartition(".")[2]) for name in sorted(unknown)]
        )
    with permitted:
        for data in inputs:
            try:
                torch.load(io.BytesIO(data), weights_only=True)
            except UnpicklingError as error:
                raise UsageError(f"{path} holds example inputs that are not plain data") from error
    return permitted


def _expressions(value: Any) -> Iterator[str]:
    """Every size expression in the JSON of a program."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "expr_str":
                yield str(item)
            yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def _check_expression(expression: str, path: Path) -> None:
    """Refuse what is more than arithmetic on sizes; sympy's own functions of sizes are capital."""
    text = _NAME.sub(r"\1(0", expression)
    calls = (name for name in _CALL.findall(text) if name not in _FUNCTIONS)
    if _NOT_ARITHMETIC.search(text) or any(not name[0].isupper() for name in calls):
        raise UsageError(f"{path} holds a size that is no arithmetic: {expression[:80]!r}")
