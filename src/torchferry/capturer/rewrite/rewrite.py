"""Control flow on tensors, rewritten in the methods of a model while it is exported."""

from __future__ import annotations
import __future__

import ast
import builtins
import difflib
import inspect
import logging
import sys
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchferry.capturer.rewrite.constructs import Refusal
from torchferry.capturer.rewrite.control_flow import Rewriter
from torchferry.capturer.rewrite.names import BUILT_IN, DISPATCH

__all__ = ["Rewriting", "rewritten"]

_log = logging.getLogger("torchferry")

_IMPORT = f"from torchferry.capturer.rewrite import dispatch as {DISPATCH}"


class Rewriting:
    """What was rewritten.

    Attributes:
        diff: of every changed method, a unified diff of its source as Python prints it.
        refused: the constructs that were left as they are.
        places: ``file:line`` of those that were rewritten.
        lasts: ``file:line`` of all constructs → the number of the last line that they decide.
    """

    def __init__(self) -> None:
        self.diff = ""
        self.refused: list[Refusal] = []
        self.places: set[str] = set()
        self.lasts: dict[str, int] = {}

    def __str__(self) -> str:
        return self.diff

    def why(self, line: str | None) -> tuple[Refusal, ...]:
        """The entries of ``refused`` that ``file:line: code`` stands in, the innermost last."""
        file, _, number = f"{line}".split(": ", 1)[0].rpartition(":")
        if not number.isdigit():
            return ()
        return tuple(one for one in self.refused if one.has(file, int(number)))

    def within(self, place: str) -> set[str]:
        """The rewritten constructs that stand in one, but for itself."""
        file, _, first = place.rpartition(":")
        last = self.lasts.get(place, 0)
        places = (one.rpartition(":") for one in self.places)
        return {f"{name}:{number}" for name, _, number in places
                if name == file and int(first) < int(number) <= last}  # fmt: skip

    def lines_of(self, places: Collection[str]) -> frozenset[tuple[str, int]]:
        """File and number of the lines whose innermost construct is one of some."""
        first = {place: int(place.rpartition(":")[2]) for place in self.lasts}
        innermost: dict[tuple[str, int], str] = {}
        for place in sorted(self.lasts, key=first.__getitem__):  # the later, the deeper
            file = place.rpartition(":")[0]
            for number in range(first[place], self.lasts[place] + 1):
                innermost[file, number] = place
        return frozenset(line for line, place in innermost.items() if place in places)


@contextmanager
def rewritten(
    model: torch.nn.Module,
    methods: Sequence[str] = ("forward",),
    *,
    only_checks: bool = False,
    leave: Mapping[str, str] | None = None,
    lines: Collection[str] = (),
) -> Iterator[Rewriting]:
    """Rewrite ifs, loops and checks in a model's methods, while the block runs.

    ``if``, ``a if test else b``, ``while``, loops over a range or over slices of tensors, and
    ``if ...: raise`` (``assert`` too) become calls that decide when they run: what a tensor
    decides goes to ``torch.cond``, ``while_loop``, ``scan`` and ``torch._check``; what Python can
    decide is done as before. Only methods of the model's own classes are rewritten, and functions
    that are asked for by a line, not those of torch.

    Left alone, and listed in ``refused``: constructs that break, return within a loop, or set
    attributes; ifs that set a name on one side only; what changes a list of outside in place;
    loops over other things, that read their counter after them, or give nothing.

    Args:
        model: any module.
        methods: names of the methods of it and of its submodules.
        only_checks: rewrite ``if ...: raise`` and ``assert``, wherever they stand, and no more.
        leave: ``file:line`` of further constructs to leave alone → why.
        lines: ``file:line`` in functions to rewrite, wherever they stand.

    Yields:
        what was rewritten.

    >>> class Step(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x
    >>> with rewritten(Step()) as rewriting:
    ...     rewriting.diff
    ''
    """
    rewriting = Rewriting()
    with ExitStack() as stack:
        functions = [*_methods(model, methods), *_functions_at(model, lines)]
        for function in dict.fromkeys(functions):
            code = _rewritten(function, rewriting, only_checks, leave or {})
            if code is not None:
                stack.callback(_exchange(function, code))
        for one in rewriting.refused:
            _log.debug("not rewritten: %s", one)
        yield rewriting


def _methods(model: torch.nn.Module, names: Sequence[str]) -> list[types.FunctionType]:
    """Methods of the classes of a model's modules, without what decorates them."""
    found = (inspect.unwrap(vars(cls)[name]) for cls in _classes(model) for name in names
             if callable(vars(cls).get(name)))  # fmt: skip
    return [*dict.fromkeys(one for one in found if isinstance(one, types.FunctionType))]


def _functions_at(model: torch.nn.Module, lines: Collection[str]) -> list[types.FunctionType]:
    """The functions that lines stand in, the outermost first; none of torch's.

    They are looked for in the modules of Python that the lines and the model's classes stand in,
    and in what the model's modules hold.
    """
    wanted: dict[str, list[int]] = {}
    for line in lines:
        file, _, number = line.rpartition(":")
        wanted.setdefault(file, []).append(int(number))
    found = [
        one for one in _functions(model, wanted)
        if any(_covers(one.__code__, number)
               for number in wanted.get(one.__code__.co_filename, ()))
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.__code__.co_firstlineno)


def _functions(model: torch.nn.Module, files: Collection[str]) -> list[types.FunctionType]:
    if not files:
        return []
    names = [vars(one) for one in [*sys.modules.values()]
             if getattr(one, "__file__", None) in files]  # fmt: skip
    own = [function for cls in _classes(model) for function in _within(cls)]
    names += [vars(module) for module in model.modules()]
    names += {id(one.__globals__): one.__globals__ for one in own}.values()
    found = [*own, *(one for values in names for value in [*values.values()]
                     for one in _within(value))]  # fmt: skip
    return [*dict.fromkeys(found)]


def _within(value: Any) -> Iterator[types.FunctionType]:
    """The function that something is, or those of a class, without what decorates them."""
    if isinstance(value, type):
        if not _is_torch(value):
            for one in [*vars(value).values()]:
                # Not of a class that a class holds: it may hold itself.
                yield from () if isinstance(one, type) else _within(one)
    elif isinstance(value, property):
        yield from _within(value.fget)
    elif isinstance(value, staticmethod | classmethod):
        yield from _within(value.__func__)
    elif type(value) in (types.FunctionType, types.MethodType) or hasattr(value, "__wrapped__"):
        function = inspect.unwrap(getattr(value, "__func__", value))
        if isinstance(function, types.FunctionType):
            yield function


def _classes(model: torch.nn.Module) -> dict[type[Any], None]:
    return dict.fromkeys(
        cls for module in model.modules() for cls in type(module).__mro__ if not _is_torch(cls)
    )


def _covers(code: types.CodeType, number: int) -> bool:
    """Whether a line stands in a function, or in one within it, but in no class within it."""
    if not code.co_firstlineno <= number <= _last_line(code):
        return False
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return not any(
        not one.co_flags & inspect.CO_OPTIMIZED and one.co_firstlineno <= number <= _last_line(one)
        for one in inner
    )


def _last_line(code: types.CodeType) -> int:
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return max([line or 0 for _, _, line in code.co_lines()] + inner)


def _exchange(function: types.FunctionType, code: types.CodeType) -> Callable[[], None]:
    """Give a function other code; returns what undoes it."""
    before = function.__code__

    def undo() -> None:
        function.__code__ = before

    function.__code__ = code
    return undo


def _is_torch(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] in ("torch", "builtins")


def _rewritten(
    function: types.FunctionType,
    rewriting: Rewriting,
    only_checks: bool,
    leave: Mapping[str, str],
) -> types.CodeType | None:
    try:
        lines, first = inspect.getsourcelines(function.__code__)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # typed in; a lambda within an expression
        return None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return None
    if definition.name != function.__code__.co_name:
        return None  # a function of ours from an earlier capture
    ast.increment_lineno(tree, first - 1)
    definition.decorator_list = []
    before = ast.unparse(definition)
    rewriter = Rewriter(definition, function.__code__.co_filename, leave, _shadowed(function))
    if only_checks:
        rewriter.rewrite_checks()
    else:
        rewriter.rewrite()
    rewriting.refused += rewriter.refused
    if not rewriter.count:
        return None
    after = ast.unparse(definition)
    # A name of its own: Dynamo finds those of a file only in modules that can be imported.
    definition.body[:0] = ast.parse(_IMPORT).body
    code = _compiled(function, tree)
    if code.co_freevars != function.__code__.co_freevars:
        return None  # it reads a name of outside that nothing read before
    rewriting.places |= rewriter.places
    rewriting.lasts |= rewriter.lasts
    title = f"{function.__module__}.{function.__qualname__}"
    rewriting.diff += "\n".join(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), title,
            f"{title}, rewritten", lineterm="",
        )
    ) + "\n"  # fmt: skip
    return code


def _shadowed(function: types.FunctionType) -> set[str]:
    """Names of built-in functions, and ``torch``, that mean something else in a function."""
    known = {**vars(builtins), "torch": torch}
    outside = function.__globals__
    return {
        name for name in BUILT_IN
        if name in function.__code__.co_freevars or outside.get(name, known[name]) != known[name]
    }  # fmt: skip


def _compiled(function: types.FunctionType, tree: ast.Module) -> types.CodeType:
    """The code of a changed tree, for the closure of the original."""
    free = function.__code__.co_freevars
    # Within a class of its name, so that self.__name means what it does there; "_" leaves it.
    *_, owner = ("_", *(name for name in function.__qualname__.split(".")[-2:-1]
                        if name.isidentifier()))  # fmt: skip
    outer = f"def _outer({', '.join(free)}):\n    class {owner}:\n        pass"
    module = ast.parse(outer)
    vars(vars(module.body[0])["body"][0])["body"] = list(tree.body)
    ast.fix_missing_locations(module)
    code = compile(module, function.__code__.co_filename, "exec")
    (outer_code,) = (c for c in code.co_consts if isinstance(c, types.CodeType))
    (class_code,) = (c for c in outer_code.co_consts if isinstance(c, types.CodeType))
    (inner,) = (c for c in class_code.co_consts if isinstance(c, types.CodeType)
                and c.co_name == function.__code__.co_name)  # fmt: skip
    return inner.replace(co_flags=inner.co_flags | _future(function.__code__))


def _future(code: types.CodeType) -> int:
    """The flags of ``from __future__`` imports, which the file of the function may have."""
    flags: list[int] = [getattr(__future__, name).compiler_flag
                        for name in __future__.all_feature_names]  # fmt: skip
    return code.co_flags & sum(flags)
