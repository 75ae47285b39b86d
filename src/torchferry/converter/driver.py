"""The walk over an FX graph: what every lowering is spared is done here, once.

Names, dtypes and shapes come from what torch.export found (``node.meta["val"]``), and so does the
check that a lowering made what it was to make. Each ONNX node learns which FX node, module and
source line it came from; an exception of a lowering is told with the same.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.converter import torchlib
from torchferry.converter.block import Block
from torchferry.converter.lowering import Lowering, find_lowering, parameter_name
from torchferry.converter.program.in_place import functional_form
from torchferry.converter.write.promote import onnx_dtype, promoted_dtype
from torchferry.converter.write.provenance import module_of, tell_origin
from torchferry.converter.write.size import Sizes
from torchferry.errors import LoweringFailed
from torchferry.seams.operators import aten
from torchferry.seams.pytorch import CHECKS, schema_of
from torchferry.seams.table import SIZE_FUNCTIONS
from torchferry.values.source_line import user_line

__all__ = ["Body", "Scope", "handled"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What a program says about its sizes, and checks as it runs; nothing is computed.
_SILENT = {
    aten._assert_async.msg, aten._assert_scalar.default, aten._assert_tensor_metadata.default,
    aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default,
    *CHECKS,
}  # fmt: skip
_SIZES = {aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default,
          aten.sym_storage_offset.default}  # fmt: skip
_READS = {aten.item.default, aten._local_scalar_dense.default}


def handled(target: Any) -> bool:
    """Whether the driver itself knows what to do with a target: sizes, items, assertions."""
    return (
        target in _SILENT
        or target is aten.detach_.default
        or target is operator.getitem
        or target is round
        or getattr(target, "__module__", None) in ("_operator", "math", SIZE_FUNCTIONS)
        or getattr(target, "__name__", "").startswith("sym_")
        or target in _SIZES
    )


class Scope:
    """One FX graph on its way into one block.

    Attributes:
        block: where the nodes go.
        values: what each FX node became: a value, a tuple of values, or a Python constant.
    """

    def __init__(self, block: Block, sizes: Sizes, *, root: Any = None) -> None:
        self.block = block
        self.values: dict[fx.Node, Any] = {}
        self._sizes = sizes
        self._root = root

    def bind(self, node: fx.Node, value: Any) -> None:
        """Give a placeholder its value; its dtype and shape are set from the node's."""
        example = node.meta.get("val")
        if isinstance(value, ir.Value) and isinstance(example, torch.Tensor):
            self._sizes.bind(value, example.shape)
        elif isinstance(value, ir.Value) and isinstance(example, _SYMBOLIC):
            self._sizes.name(self.block, example, value)
        self.values[node] = value

    def input(self, node: fx.Node) -> ir.Value:
        """A graph input for a placeholder."""
        value = ir.Value(name=node.name)
        self._describe(value, node.meta["val"])
        self.bind(node, value)
        return value

    def walk(self, graph: fx.Graph) -> list[Any]:
        """Write every node of a graph whose placeholders are bound; return what it returns.

        Raises:
            LoweringFailed: names the node, its inputs, and the user's line.
        """
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "output":
                returned = node.args[0]
                items = returned if isinstance(returned, (list, tuple)) else [returned]
                try:
                    return [self.resolve(item) for item in items]
                except ValueError as error:
                    raise _failed(
                        node, f"what the model returns has no ONNX form: {error}"
                    ) from error
            elif node.op != "placeholder":
                raise _failed(node, f"an FX node of kind {node.op} is no part of ATen")
        return []

    def resolve(self, item: Any) -> Any:
        """What an argument of an FX node became."""
        if isinstance(item, fx.Node):
            found = self.values[item]
            return self._sizes.value(self.block, found) if isinstance(found, _SYMBOLIC) else found
        if isinstance(item, _SYMBOLIC):
            return self._sizes.value(self.block, item)
        if isinstance(item, (list, tuple)):
            return [self.resolve(part) for part in item]
        return item

    # One node ----------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> None:
        target, example = node.target, node.meta.get("val")
        if target in _SILENT:
            self.values[node] = None
        elif target is aten.detach_.default:  # of what torch.tensor(...) made in forward
            self.values[node] = self.resolve(node.args[0])
        elif target is operator.getitem and not isinstance(example, _SYMBOLIC):
            source, index = node.args
            self.values[node] = self.resolve(source)[index]
        elif isinstance(example, _SYMBOLIC) and target not in _READS:
            first = len(self.block.nodes)
            self.values[node] = self._sizes.step(self.block, node, self.resolve)
            tell_origin(self.block.nodes[first:], node)
        elif isinstance(example, (bool, int, float)):
            self.values[node] = example
        else:
            self._lower(node)

    def _lower(self, node: fx.Node) -> None:
        first = len(self.block.nodes)
        complex_numbers = any(map(_is_complex, [node, *node.all_input_nodes]))
        # A write in place that is still here is one that nobody sees.
        target = functional_form(node.target) or node.target
        lowering = find_lowering(target, complex=complex_numbers)
        example = node.meta.get("val")
        self.block.results = len(example) if isinstance(example, (list, tuple)) else 1
        self.block.read = _read_results(node)
        try:
            if lowering is not None:
                args, kwargs = self._arguments(node, lowering)
                result = lowering.write(self.block, *args, **kwargs)
            else:
                result = torchlib.translate(self, node)
            self.values[node] = self._finished(result, example, node)
        except LoweringFailed:
            raise
        except Exception as error:  # the driver's wrapper: any lowering's exception gets its place
            raise _failed(node, str(error) or type(error).__name__) from error
        tell_origin(self.block.nodes[first:], node)

    def _arguments(self, node: fx.Node, lowering: Lowering) -> tuple[list[Any], dict[str, Any]]:
        kinds = _kinds(node.target)
        bound = [self._argument(item, kinds, place) for place, item in enumerate(node.args)]
        named = {key: self._argument(item, kinds, key) for key, item in node.kwargs.items()}
        if lowering.promote is not None:
            self._promote(node, bound, lowering)
        named = {parameter_name(key): value for key, value in named.items()}
        if lowering.change:
            return [], lowering.by_name(node.target, bound, named)
        if named.keys() <= _parameters(lowering.write):
            return bound, named
        return bound + _in_order(named, node.target, len(bound)), {}

    def _argument(self, item: Any, kinds: Mapping[Any, bool], place: Any) -> Any:
        if isinstance(item, fx.Node) and isinstance(self.values[item], _Graph):
            return self.values[item].body()
        value = self.resolve(item)
        if kinds.get(place, True):
            return value
        example = item.meta.get("val") if isinstance(item, fx.Node) else item
        if isinstance(value, ir.Value) and isinstance(example, _SYMBOLIC):
            return self.block.scalar(value)
        return value

    def _promote(self, node: fx.Node, bound: list[Any], lowering: Lowering) -> None:
        """Bring the operands to one dtype, in place."""
        names = _operands(node.target)
        wanted = lowering.operands or names
        places = [place for place in range(len(bound)) if names[place] in wanted]
        dtype = promoted_dtype([bound[place] for place in places], lowering.promote or "default")
        if dtype.is_complex:
            dtype = dtype.to_real()
        for place in places:
            if isinstance(bound[place], ir.Value):
                bound[place] = self.block.cast(bound[place], dtype)
            elif isinstance(bound[place], (bool, int, float)) and not _holds_value(bound, places):
                bound[place] = self.block.constant(bound[place], dtype)

    # Results -----------------------------------------------------------------------------------

    def _finished(self, result: Any, example: Any, node: fx.Node) -> Any:
        """The result, named, typed and checked against what torch.export found."""
        if isinstance(example, (list, tuple)):
            if not isinstance(result, (list, tuple)) or len(result) != len(example):
                raise ValueError(f"it was written as {result!r}, and {len(example)} are returned")
            pairs = enumerate(zip(result, example, strict=True))
            return [self._one(part, known, node, f"_{index}") for index, (part, known) in pairs]
        if isinstance(result, (list, tuple)) and len(result) == 1:
            result = result[0]
        if isinstance(result, (list, tuple)):
            raise TypeError(f"it was written as {len(result)} values where one is returned")
        return self._one(result, example, node, "")

    def _one(self, result: Any, example: Any, node: fx.Node, suffix: str) -> Any:
        b = self.block
        if result is None or example is None:
            return None
        if isinstance(example, _SYMBOLIC):
            self._sizes.name(b, example, result)
            return example
        value = result if isinstance(result, ir.Value) else b.constant(result)
        dtype = onnx_dtype(_real_dtype(example.dtype))
        if value.dtype is not None and value.dtype != dtype:
            value = b.cast(value, dtype)
        if value.producer() is None or value.meta.get("finished"):
            # an input, a weight, or another node's result under one more name
            _check_shape(value, self._axes(example), example.shape)
            return value
        value.name = node.name + suffix
        self._describe(value, example)
        return value

    def _describe(self, value: ir.Value, example: torch.Tensor) -> None:
        value.type = ir.TensorType(onnx_dtype(_real_dtype(example.dtype)))
        shape = self._axes(example)
        _check_shape(value, shape, example.shape)
        if example.dtype.is_complex:
            value.meta["complex"] = True
        value.shape = ir.Shape(shape)
        value.meta["finished"] = True
        value.meta["example"] = example  # as torch knows it: strides, too
        self._sizes.bind(value, example.shape)

    def _axes(self, example: torch.Tensor) -> list[int | str]:
        """The shape of a tensor in ONNX; complex numbers are a last axis of two."""
        pair = [2] if example.dtype.is_complex else []
        return [*map(self._sizes.axis, example.shape), *pair]

    def _attribute(self, node: fx.Node) -> Any:
        found: Any = self._root if self._root is not None else node.graph.owning_module
        for name in str(node.target).split("."):
            found = getattr(found, name)
        if isinstance(found, fx.GraphModule):
            return _Graph(found, self._sizes)
        return self.block.constants.weight(found, str(node.target))


class _Graph:
    """A graph that a control flow operator runs."""

    def __init__(self, module: fx.GraphModule, sizes: Sizes) -> None:
        self._module, self._sizes = module, sizes

    def body(self) -> Body:
        return Body(self._module, self._sizes)


class Body:
    """A graph inside the program, to be written into a block by the lowering that runs it.

    Attributes:
        module: the graph.
        sizes: the symbolic sizes around it.
    """

    def __init__(self, module: fx.GraphModule, sizes: Sizes) -> None:
        self.module, self.sizes = module, sizes

    @property
    def placeholders(self) -> list[fx.Node]:
        """The inputs of the graph, with dtype and shape in ``meta["val"]``."""
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    def inputs(self) -> list[ir.Value]:
        """New values with the dtype and shape of each placeholder, to be bound in a call."""
        scope = Scope(Block(0), Sizes(outer=self.sizes))
        return [scope.input(node) for node in self.placeholders]

    def __call__(self, b: Block, *values: Any) -> list[Any]:
        """Write the graph's nodes into ``b``; return its outputs."""
        scope = Scope(b, Sizes(outer=self.sizes), root=self.module)
        for node, value in zip(self.placeholders, values, strict=True):
            scope.bind(node, value)
        return scope.walk(self.module.graph)


def _read_results(node: fx.Node) -> frozenset[Any]:
    """The places of an operator's results that something reads."""
    return frozenset(
        user.args[1] for user in node.users if user.target is operator.getitem and user.users
    )


def _failed(node: fx.Node, reason: str) -> LoweringFailed:
    line, module = user_line(node.stack_trace), module_of(node)
    inputs = ", ".join(f"{arg.name}: {_brief(arg)}" for arg in node.all_input_nodes)
    lines = [f"cannot convert {node.target} ({node.name}) to ONNX: {reason[:600]}"]
    lines += [f"  inputs  {inputs[:300]}"] if inputs else []
    lines += [f"  module  {module}"] if module else []
    lines += [f"  source  {line}"] if line else []
    return LoweringFailed("\n".join(lines), node=node.name, source_line=line)


def _brief(node: fx.Node) -> str:
    example = node.meta.get("val")
    if isinstance(example, torch.Tensor):
        sizes = ", ".join(map(str, example.shape))
        return f"{str(example.dtype).removeprefix('torch.')}[{sizes}]"
    return type(example).__name__


def _check_shape(value: ir.Value, shape: Sequence[int | str], sizes: Sequence[Any]) -> None:
    """What the lowering is known to have made must fit what torch.export says it makes.

    A symbolic size is taken as that of the export: what is 1 there and nowhere else may be it.
    """
    if value.shape is None:
        return
    made = list(value.shape)
    fits = len(made) == len(shape) and all(
        not isinstance(a, int) or _seen(size) in (a, None)
        for a, size in zip(made, [*sizes, *shape[len(sizes) :]], strict=True)
    )
    if not fits:
        raise ValueError(f"its shape would be {value.shape}, and torch has {list(shape)}")


def _seen(size: Any) -> Any:
    """The size of the export; ``None`` where that is not known."""
    if isinstance(size, torch.SymInt):
        return size.node.hint if size.node.has_hint() else None
    return size


def _is_complex(node: fx.Node) -> bool:
    example = node.meta.get("val")
    examples = example if isinstance(example, (list, tuple)) else (example,)
    return any(isinstance(e, torch.Tensor) and e.dtype.is_complex for e in examples)


def _real_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _holds_value(bound: Sequence[Any], places: Sequence[int]) -> bool:
    return any(isinstance(bound[place], ir.Value) for place in places)


@cache
def _kinds(target: Any) -> dict[Any, bool]:
    """Which arguments of an overload are sizes, by position and name; the others are scalars."""
    schema = schema_of(target)
    kinds: dict[Any, bool] = {}
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        text = str(argument.type)
        kinds[place] = kinds[argument.name] = "int" in text
    return kinds


@cache
def _operands(target: Any) -> list[str]:
    """The names of an overload's arguments, ``x`` for self; keyword-only ones are empty."""
    return ["" if a.kwarg_only else parameter_name(a.name) for a in schema_of(target).arguments]


@cache
def _parameters(write: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(write).parameters)


def _in_order(named: dict[str, Any], target: Any, given: int) -> list[Any]:
    """Named arguments in the order of the schema, defaults between them.

    For a function that serves several overloads and calls an argument otherwise.
    """
    schema = schema_of(target)
    if schema is None:
        raise ValueError(f"it has arguments by name ({', '.join(named)}) and no schema")
    arguments = [(parameter_name(a.name), a.default_value) for a in schema.arguments[given:]]
    while arguments and arguments[-1][0] not in named:
        arguments.pop()
    return [named.get(name, default) for name, default in arguments]
