"""Which sizes and integers a program is right for, in the user's names.

``if x.shape[0] > 5`` is decided when the program is captured: it is right only for sizes that go
the same way. torch.export keeps these tests as text (``L['x'].size()[0] > 5``), which its own
modules check in every call, and some of them as ranges of sizes.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.dims import Condition, is_positive, parse_size
from torchferry.graph.outline import CONDITIONS_KEY
from torchferry.observer.guards import (
    chosen,
    deferred_guards,
    guard_lines,
    later_guards,
    later_hints,
    line_of_torch,
    mixed_numbers,
)
from torchferry.observer.tree import (
    flat_arguments,
    input_sizes,
    leaves_of,
    named_path,
    program_inputs,
)
from torchferry.seams.pytorch import guards_of
from torchferry.seams.symbols import expression_text, has_unbacked_symbols, plain_text
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.signature import SIGNATURE_KEY, Signature
from torchferry.values.source_line import user_line

__all__ = [
    "conditions_of",
    "missing_guards",
    "read_guards",
    "store_signature",
]

_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Lt: operator.lt, ast.LtE: operator.le,
}  # fmt: skip
_LAYOUT = "IsNonOverlappingAndDenseIndicator"
_UNLIMITED = 2**31  # a bound this large does not limit anything
_SPECIAL = 2  # the least size that torch takes for neither 0 nor 1, which it checks nowhere


def conditions_of(
    program: ExportedProgram,
    named: Callable[[str], str] = str,
    lines: Mapping[str, str] | None = None,
    doubts: Iterable[str] = (),
) -> list[Condition]:
    """What the sizes and integers of the program's inputs must fulfil.

    Where a guard cannot be read as a test of sizes, all sizes that it may speak of must be those
    that the program was exported with.

    Args:
        program: as torch.export made it.
        named: a size in torch's symbols to the same in the user's names.
        lines: ``file:line: code`` by guard, as `guard_lines` gives them.
        doubts: what `missing_guards` gives, as far as nobody has tried it.
    """
    doubts = tuple(doubts)
    lines = guard_lines(program) | dict(lines or {})
    read = read_guards(program, named, (*guards_of(program), *doubts), lines)
    choices = chosen(program)
    found = {
        replace(condition, choice=guard in choices): None
        for guard in guards_of(program)
        for condition in read[guard]
    }
    known = tuple(found)
    others = (
        *_of_ranges(program, named, known),
        *_of_squeezes(program, named),
        *_of_assertions(program, named),
    )
    found |= dict.fromkeys([*others, *_of_operators(program, named)])
    for one in (one for guard in doubts for one in read[guard]):
        special = re.fullmatch(r"n0 != (\d+)", one.test)
        new = _unless_known(one.test, one.sizes[0], int(special[1]), known) if special else [one]
        found |= dict.fromkeys(new)
    return [condition for condition in found if not _is_trivial(condition)]


def read_guards(
    program: ExportedProgram,
    named: Callable[[str], str],
    guards: Iterable[str],
    lines: Mapping[str, str] | None = None,
) -> dict[str, list[Condition]]:
    """Read guards as conditions, and leave out those that hold for all sizes.

    Args:
        program: as torch.export made it.
        named: see `conditions_of`.
        guards: in the form of torch's.
        lines: see `conditions_of`.
    """
    sources = {text: named(size) for text, size in _size_sources(program)}
    read = {
        guard: _read(guard, sources, (lines or {}).get(guard, ""), program, named)
        for guard in guards
    }
    return {
        guard: [one for one in conditions if not _is_trivial(one)]
        for guard, conditions in read.items()
    }


def store_signature(signature: Signature, metadata: MutableMapping[str, str]) -> bool:
    """Write a signature into the metadata of an ONNX model, and its conditions to be read.

    Returns:
        whether it is another than before.
    """
    before = metadata.get(SIGNATURE_KEY)
    conditions = [Condition(*one) for one in signature.conditions]
    lines = [f"{one}  # {one.line}" if one.line else str(one) for one in conditions]
    metadata[SIGNATURE_KEY] = signature.to_json()
    metadata.pop(CONDITIONS_KEY, None)
    if lines:
        metadata[CONDITIONS_KEY] = "\n".join(lines)
    return metadata[SIGNATURE_KEY] != before


def _read(
    guard: str,
    sources: Mapping[str, str],
    line: str,
    program: ExportedProgram,
    named: Callable[[str], str],
) -> Iterator[Condition]:
    numbered = _Numbered(sources)
    test = ast.unparse(_plain(numbered.visit(ast.parse(plain_text(guard), mode="eval"))))
    try:
        yield Condition(test, tuple(numbered.sizes), line)
    except ValueError:
        for size, example in _examples(program, guard):
            yield Condition(f"n0 == {example}", (named(size),), line)


def _examples(program: ExportedProgram, guard: str) -> Iterator[tuple[str, int]]:
    """Dynamic sizes of the inputs that a guard names, or of all, as they were at the capture."""
    leaves = leaves_of(*(program.example_inputs or ((), {})))
    inputs = list(program_inputs(program))
    numbers = {path: number for number, (path, _) in enumerate(flat_arguments(program))}
    named = {
        path
        for path, _ in inputs
        if any(text in guard for text in _texts(program, path, numbers[path]))
    }
    for path, node in inputs:
        for axis, size in input_sizes(node).items():
            if (path in named or not named) and not isinstance(size, int):
                leaf = leaves[path]
                yield str(size), int(leaf if axis < 0 else leaf.shape[axis])


def _of_ranges(
    program: ExportedProgram, named: Callable[[str], str], known: tuple[Condition, ...]
) -> Iterator[Condition]:
    """Ranges of sizes and integers, which the code may have relied on without another guard."""
    ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    for _, node in program_inputs(program):
        for axis, size in input_sizes(node).items():
            limits = ranges.get(str(size))
            if limits is None:
                continue
            least = 0 if axis >= 0 else -_UNLIMITED
            lower = int(limits.lower) if limits.lower.is_Integer else least
            if lower > least and not (axis >= 0 and lower == _SPECIAL):
                yield from _unless_known(f"n0 >= {lower}", named(str(size)), lower - 1, known)
            if limits.upper.is_Integer and int(limits.upper) < _UNLIMITED:
                upper = int(limits.upper)
                yield from _unless_known(f"n0 <= {upper}", named(str(size)), upper + 1, known)


def _of_squeezes(program: ExportedProgram, named: Callable[[str], str]) -> Iterator[Condition]:
    """Sizes that are not 1 as the program was traced, but are taken away if they are 1 later."""
    for node in program.graph.nodes:
        if getattr(node.target, "overloadpacket", None) is torch.ops.aten.squeeze:
            shape = node.args[0].meta["val"].shape
            axes = node.args[1] if len(node.args) > 1 else range(len(shape))
            for axis in [axes] if isinstance(axes, int) else axes:
                # What depends on data is tested where the graph runs.
                size = shape[axis]
                if isinstance(size, torch.SymInt) and not has_unbacked_symbols(size):
                    yield Condition("n0 != 1", (named(str(size)),))


def _unless_known(
    test: str, size: str, beyond: int, known: tuple[Condition, ...]
) -> Iterator[Condition]:
    """A bound, unless a test of the same size refuses the number next to it already."""
    alike = (one for one in known if one.sizes == (size,))
    if all(one.holds({size: beyond}) for one in alike):
        yield Condition(test, (size,))


def _plain(test: ast.Expression) -> ast.Expression:
    """As people write it: ``n <= 64`` for ``n == min(64, n)``, ``n % 8 == 0`` for ``<= 0``."""
    match test.body:
        case ast.Compare(
            left=ast.BinOp(op=ast.Mod()) as rest, ops=[ast.LtE()], comparators=[ast.Constant(0)]
        ):
            return ast.Expression(ast.Compare(rest, [ast.Eq()], [ast.Constant(0)]))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Call(args=[a, b]) as call]):
            ends = {"min": ast.LtE(), "max": ast.GtE()}
            texts = [ast.unparse(a), ast.unparse(b)]
            name, size = ast.unparse(call.func), ast.unparse(left)
            if name in ends and size in texts:
                other = b if texts[0] == size else a
                return ast.Expression(ast.Compare(left, [ends[name]], [other]))
    return test


def _is_trivial(condition: Condition) -> bool:
    """Whether it holds for all sizes, since the user's names say that two sizes are one."""
    return _always_holds(ast.parse(str(condition), mode="eval").body)


def _always_holds(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=op, values=values):
            return (any if isinstance(op, ast.Or) else all)(map(_always_holds, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            apart = parse_size(ast.unparse(left)) - parse_size(ast.unparse(right))
            if isinstance(apart, int):
                return _COMPARISONS[type(op)](apart, 0)
            return isinstance(op, ast.NotEq) and is_positive(apart)
    return False


class _Numbered(ast.NodeTransformer):
    """Puts ``n0``, ``n1`` in the place of the sizes of inputs."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.sources = sources
        self.sizes: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        size = self.sources.get(ast.unparse(node)) if isinstance(node, ast.expr) else None
        if size is None:
            return super().visit(node)
        number = parse_size(size)
        if isinstance(number, int):
            return ast.Constant(number)
        if size not in self.sizes:
            self.sizes.append(size)
        return ast.Name(f"n{self.sizes.index(size)}")


def _size_sources(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """How guards call each size and integer of an input, and the same in torch's symbols."""
    numbers = {path: number for number, (path, _) in enumerate(flat_arguments(program))}
    for path, node in program_inputs(program):
        for axis, size in input_sizes(node).items():
            for text in _texts(program, path, numbers[path]):
                yield (text if axis < 0 else f"{text}.size()[{axis}]"), str(size)
    for path, number in _fixed_integers(program):
        for text in _texts(program, path, numbers[path]):
            yield text, str(number)


def _fixed_integers(program: ExportedProgram) -> Iterator[tuple[ValuePath, int]]:
    """Integers among the arguments that the program holds constant."""
    dynamic = {path for path, _ in program_inputs(program)}
    for path, leaf in flat_arguments(program):
        if isinstance(leaf, int) and path not in dynamic:
            yield path, int(leaf)


def _texts(program: ExportedProgram, path: ValuePath, number: int) -> Iterator[str]:
    """How guards call an argument: by its place, or, of a strict capture, by its number."""
    named = named_path(program, path)
    for place in {named, *_variadic(named)}:
        yield "L" + "".join(f"[{key!r}]" for key in place)
    yield f"L['flat_args'][{number}]"


def _variadic(path: ValuePath) -> Iterator[ValuePath]:
    """``xs_0`` is the first of ``*xs``."""
    name, _, number = str(path[0]).rpartition("_")
    if name and number.isdecimal():
        yield (name, int(number), *path[1:])


def _known_symbols(program: ExportedProgram) -> set[str]:
    """The symbols that sizes of the inputs tell."""
    return {name for _, size in _size_sources(program) for name in re.findall(r"[a-z]\w*", size)}


def _of_operators(program: ExportedProgram, named: Callable[[str], str]) -> Iterator[Condition]:
    """Yield the guards that torch added while it decomposed operators, as conditions."""
    known = _known_symbols(program)
    hints = {one: hint for one, hint in later_hints(program).items() if str(one) not in known}
    for guard in later_guards(program):
        if _LAYOUT in str(guard.expr):
            continue  # how a tensor lies in memory, which changes no number
        tested = guard.expr.subs(hints)  # an integer that the program holds constant
        yield from _of_expression(tested, named, line_of_torch(guard.sloc), choice=True)


def _of_assertions(program: ExportedProgram, named: Callable[[str], str]) -> Iterator[Condition]:
    """Yield the guards that a program asserts as it runs: ``torch.onnx`` has torch defer them."""
    for node in program.graph.nodes:
        tested = node.args[0] if node.target is torch.ops.aten._assert_scalar.default else None
        value = tested.meta.get("val") if isinstance(tested, torch.fx.Node) else None
        if isinstance(value, torch.SymBool) and not has_unbacked_symbols(value):
            line = user_line(node.stack_trace) or ""
            yield from _of_expression(value.node.expr, named, line)
    known = _known_symbols(program)
    for tested, line in deferred_guards(program):
        if {str(symbol) for symbol in tested.free_symbols} <= known:
            yield from _of_expression(tested, named, line)


def _of_expression(
    tested: Any, named: Callable[[str], str], line: str, *, choice: bool = False
) -> Iterator[Condition]:
    symbols = sorted(map(str, tested.free_symbols))
    test = expression_text(tested)
    for number, symbol in enumerate(symbols):
        test = re.sub(rf"\b{symbol}\b", f"n{number}", test)
    if symbols:
        yield Condition(test, tuple(map(named, symbols)), line, choice=choice)


def missing_guards(program: ExportedProgram) -> Iterator[str]:
    """Guards that torch keeps none of: against sizes of 0 and 1, and of numbers that compete.

    Its symbols of sizes are positive numbers, so that ``if x.shape[0]:`` is true for all of them;
    and whether a size is 1, as ``x.squeeze()`` asks, it denies, also where 1 is like any other.
    For ``max(1, n / 4)`` see `mixed_numbers`.
    """
    ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    named = [*_size_sources(program)]
    sources = {size: text for text, size in named}
    for text, size in named:
        limits = ranges.get(size)
        if ".size()" in text and limits is not None:
            yield f"{text} != 0"
            yield f"{text} != 1"
    for tested in mixed_numbers(program):
        if {str(symbol) for symbol in tested.free_symbols} <= sources.keys():
            yield re.sub(r"[a-z]\w*", lambda found: sources.get(found[0], found[0]),
                         expression_text(tested))  # fmt: skip
