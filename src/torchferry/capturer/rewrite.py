"""Control flow on tensors, rewritten in the methods of a model while it is exported."""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import logging
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchferry.capturer import dispatch
from torchferry.capturer.aliases import find_lost, leave_out
from torchferry.capturer.control_flow import DISPATCH, Refusal, Rewriter
from torchferry.capturer.names import BUILT_IN
from torchferry.capturer.patch import Attribute
from torchferry.capturer.result import Captured

__all__ = ["Rewriting", "rewritten", "run_rewritten"]

_log = logging.getLogger("torchferry")


class Rewriting:
    """What was rewritten.

    Attributes:
        diff: of every changed method, a unified diff of its source as Python prints it.
        refused: the constructs that were left as they are.
        places: ``file:line`` of those that were rewritten.
    """

    def __init__(self) -> None:
        self.diff = ""
        self.refused: list[Refusal] = []
        self.places: set[str] = set()

    def __str__(self) -> str:
        return self.diff

    def why(self, line: str | None) -> tuple[Refusal, ...]:
        """The entries of ``refused`` that ``file:line: code`` stands in, the innermost last."""
        file, _, number = f"{line}".split(": ", 1)[0].rpartition(":")
        if not number.isdigit():
            return ()
        return tuple(one for one in self.refused if one.has(file, int(number)))


@contextmanager
def rewritten(
    model: torch.nn.Module,
    methods: Sequence[str] = ("forward",),
    *,
    only_checks: bool = False,
    leave: Mapping[str, str] | None = None,
) -> Iterator[Rewriting]:
    """Rewrite ifs, loops and checks in a model's methods, while the block runs.

    ``if``, ``a if test else b``, ``while``, ``for t in range(x.shape[1])``, ``for row in x`` and
    ``if ...: raise`` (``assert`` too) become calls that decide when they run: what a tensor
    decides goes to ``torch.cond``, ``while_loop``, ``scan`` and ``torch._check``; what Python can
    decide is done as before. A range may have a start, and ``x`` stand in ``enumerate``. Only
    methods of the model's own classes are rewritten, not those of torch.

    Left alone, and listed in ``refused``: constructs that break, return on one side, or set
    attributes or items; ifs that set a name on one side only; what changes a list of outside in
    place, or a tensor by a method; loops that use their counter for more than ``x[:, t]``, or
    after them, or carry nothing from step to step.

    Args:
        model: any module.
        methods: names of the methods of it and of its submodules.
        only_checks: rewrite ``if ...: raise`` and ``assert``, wherever they stand, and no more.
        leave: ``file:line`` of further constructs to leave alone → why.

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
    classes = dict.fromkeys(cls for one in model.modules() for cls in type(one).__mro__)
    with ExitStack() as stack:
        for cls in classes:
            for name in methods:
                function = vars(cls).get(name)
                if isinstance(function, types.FunctionType) and not _is_torch(cls):
                    new = _rewritten(function, rewriting, only_checks, leave or {})
                    if new is not None:
                        stack.callback(Attribute(cls, name).write(new))
        for one in rewriting.refused:
            _log.debug("not rewritten: %s", one)
        yield rewriting


def run_rewritten(
    model: torch.nn.Module, run: Callable[[Rewriting | None], Captured], rewrite: bool = True
) -> tuple[Captured, Rewriting]:
    """Capture a model whose methods are rewritten, but for what would lose a change in place.

    Args:
        model: any module.
        run: captures it, given what was rewritten.
        rewrite: whether to rewrite anything.

    Returns:
        what the last run gives, and what was rewritten for it.

    Raises:
        CaptureError: a change is lost, and nobody knows where.
    """
    if not rewrite:
        return run(None), Rewriting()
    leave: dict[str, str] = {}
    while True:
        with rewritten(model, leave=leave) as rewriting:
            captured = run(rewriting)
        lost = find_lost(captured.program, rewriting.places)
        if not lost:
            return captured, rewriting
        leave_out(lost, leave)


def _is_torch(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] == "torch"


def _rewritten(
    function: types.FunctionType,
    rewriting: Rewriting,
    only_checks: bool,
    leave: Mapping[str, str],
) -> Callable[..., Any] | None:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or hasattr(function, "__wrapped__"):
        return None
    ast.increment_lineno(tree, first - 1)
    definition.decorator_list = []
    before = ast.unparse(definition)
    rewriter = Rewriter(
        definition, function.__code__.co_filename, only_checks, leave, _shadowed(function)
    )
    rewriter.rewrite()
    rewriting.refused += rewriter.refused
    rewriting.places |= rewriter.places
    if not rewriter.count:
        return None
    title = f"{function.__module__}.{function.__qualname__}"
    rewriting.diff += "\n".join(
        difflib.unified_diff(
            before.splitlines(), ast.unparse(definition).splitlines(), title,
            f"{title}, rewritten", lineterm="",
        )
    ) + "\n"  # fmt: skip
    return _compiled(function, tree)


def _shadowed(function: types.FunctionType) -> set[str]:
    """Names of built-in functions, and ``torch``, that mean something else in a function."""
    known = {**vars(builtins), "torch": torch}
    outside = function.__globals__
    return {
        name for name in BUILT_IN
        if name in function.__code__.co_freevars or outside.get(name, known[name]) != known[name]
    }  # fmt: skip


def _compiled(function: types.FunctionType, tree: ast.Module) -> types.FunctionType:
    """The function of a changed tree, with the globals and the closure of the original."""
    free = function.__code__.co_freevars
    # Within a class of its name, so that self.__name means what it does there; "_" leaves it.
    *_, owner = ("_", *(name for name in function.__qualname__.split(".")[-2:-1]
                        if name.isidentifier()))  # fmt: skip
    outer = f"def _outer({', '.join((*free, DISPATCH))}):\n    class {owner}:\n        pass"
    module = ast.parse(outer)
    vars(vars(module.body[0])["body"][0])["body"] = list(tree.body)
    ast.fix_missing_locations(module)
    code = compile(module, function.__code__.co_filename, "exec")
    (outer_code,) = (c for c in code.co_consts if isinstance(c, types.CodeType))
    (class_code,) = (c for c in outer_code.co_consts if isinstance(c, types.CodeType))
    (inner,) = (c for c in class_code.co_consts if isinstance(c, types.CodeType)
                and c.co_name == function.__name__)  # fmt: skip
    cells = dict(zip(free, function.__closure__ or (), strict=True))
    cells[DISPATCH] = types.CellType(dispatch)
    made = types.FunctionType(
        inner,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in inner.co_freevars),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__doc__ = function.__qualname__, function.__doc__
    made.__annotations__ = dict(function.__annotations__)
    return made
