"""Give every symbolic dimension of a model the user's name; torch's symbols never leak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
from torch import fx
from torch.export import ExportedProgram

from torchferry.dims import Dim, Size, names_in, parse_size, solve_renaming, substitute
from torchferry.errors import ConversionError
from torchferry.observer import conventional_name
from torchferry.observer.naming import input_name, pick_name, unaliased
from torchferry.observer.tree import input_sizes, leaves_of, named_path, program_inputs
from torchferry.values.flatten import Path, path_text

__all__ = ["DimensionNames", "is_data_dependent", "name_dimensions", "rename_dimensions"]


class DimensionNames:
    """What the user calls the sizes that torch writes with its symbols.

    Args:
        program: whose input sizes are expressions of torch's symbols.
        dims: wanted size by ``(path, axis)``; what it leaves without a name gets a conventional
            one, or ``data_dependent_0`` where no input has that size.

    Raises:
        ConversionError: two dimensions that must be independent are one in the program.
    """

    def __init__(self, program: ExportedProgram, dims: Mapping[tuple[Path, int], Size]) -> None:
        wanted = {(unaliased(path), axis): size for (path, axis), size in dims.items()}
        renaming = solve_renaming(list(_known_axes(program, wanted)))
        for place, found, size in renaming.conflicts:
            if isinstance(found, Dim):
                raise ConversionError(
                    f"{place} is called {size}, but the program uses the size of {found} for it: "
                    "its code takes the two for equal. Give inputs where they differ, or name "
                    "them alike"
                )
        self._names = {**renaming.names, **_names_left(program, renaming.names)}
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """The text of a size (``s13 + s70``) in the user's names (``past + sequence``)."""
        if text not in self._known:
            size = parse_size(text)
            for symbol in sorted(names_in(size) - self._names.keys()):
                # A size that depends on data has no name of the user's: number them.
                number = sum(1 for name in self._names.values() if is_data_dependent(name))
                self._names[symbol] = Dim.of(f"data_dependent_{number}")
            self._known[text] = str(substitute(size, self._names))
        return self._known[text]


def rename_dimensions(model: ir.Model, names: DimensionNames) -> None:
    """Rename the dimensions of every value of a model that torch.onnx translated, in place."""
    for value in _values(model):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(dim, names) for dim in value.shape])


def name_dimensions(program: ExportedProgram) -> dict[tuple[str, int], Size]:
    """Conventional names for the dynamic input dimensions of a program.

    torch.export keeps no names. Two dimensions with the same conventional name and the same size
    in the example inputs are taken for one; a mask as long as past and sequence together is their
    sum. This only names them: the program itself says what it accepts.

    Returns:
        Size by (name of the input, axis).
    """
    named: dict[tuple[str, int], Size] = {}
    by_symbol: dict[Size, Size] = {}
    examples: dict[Size, int] = {}
    ordered = sorted(program_inputs(program), key=lambda item: "mask" in item[1].name)
    leaves = leaves_of(*(program.example_inputs or ((), {})))
    for path, node in ordered:
        known_path = named_path(program, path)
        for axis, torch_size in input_sizes(node).items():
            found = parse_size(str(torch_size))
            if isinstance(found, int):
                continue
            if found not in by_symbol:
                example = leaves[path] if axis < 0 else leaves[path].shape[axis]
                by_symbol[found] = _named(
                    unaliased(known_path), axis, _rank(node), example, examples
                )
                examples.setdefault(by_symbol[found], example)
            named[input_name(known_path), axis] = by_symbol[found]
    return named


def _named(path: Path, axis: int, rank: int, example: int, examples: Mapping[Size, int]) -> Size:
    """The usual name, unless it is taken by another size; else a sum of two known sizes."""
    usual = conventional_name(path, axis, rank)
    if usual is not None and examples.get(Dim.of(usual), example) == example:
        return Dim.of(usual)
    known = [size for size in examples if isinstance(size, Dim) and size.name]
    sums = [
        a + b
        for i, a in enumerate(known)
        for b in known[i + 1 :]
        if examples[a] + examples[b] == example and usual is not None
    ]
    if len(sums) == 1:
        return sums[0]
    return Dim.of(pick_name([(path, axis, rank)], {str(size) for size in examples}))


def _known_axes(
    program: ExportedProgram, wanted: Mapping[tuple[Path, int], Size]
) -> Iterator[tuple[str, Size, Size]]:
    usual = {} if wanted else name_dimensions(program)
    for path, node in program_inputs(program):
        for axis, torch_size in input_sizes(node).items():
            name = input_name(named_path(program, path))
            size = wanted.get((unaliased(path), axis), usual.get((name, axis)))
            if size is not None:
                yield f"{path_text(path)} axis {axis}", parse_size(str(torch_size)), size


def _names_left(program: ExportedProgram, names: Mapping[str, Size]) -> dict[str, Size]:
    """Names for the symbols of input sizes that have none yet."""
    found: dict[str, Size] = {}
    for path, node in program_inputs(program):
        known_path = named_path(program, path)
        for axis, torch_size in input_sizes(node).items():
            for symbol in sorted(names_in(parse_size(str(torch_size))) - {*names, *found}):
                taken = {str(size) for size in [*names.values(), *found.values()]}
                found[symbol] = Dim.of(pick_name([(known_path, axis, _rank(node))], taken))
    return found


def _rank(node: fx.Node) -> int:
    return len(getattr(node.meta["val"], "shape", ()))


def _renamed(dim: int | ir.SymbolicDim, names: DimensionNames) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    text = names(str(dim.value))
    return int(text) if text.isdecimal() else ir.SymbolicDim(text)


def is_data_dependent(size: object) -> bool:
    """Whether no input has a size of this name, or one that it is computed from."""
    return "data_dependent_" in str(size)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    seen: set[int] = set()
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:
        values = [*graph.inputs, *graph.initializers.values()]
        for node in graph.all_nodes():
            values += [*(v for v in node.inputs if v is not None), *node.outputs]
        for value in values:
            if id(value) not in seen:
                seen.add(id(value))
                yield value
