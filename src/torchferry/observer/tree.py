"""A call's arguments as one flat mapping from path to leaf, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.errors import UsageError
from torchferry.seams.pytorch import pytree
from torchferry.values.flatten import Path, register_pytrees

__all__ = [
    "containers_of", "fixed_integer", "flat_arguments", "input_sizes", "leaves_of", "named_path",
    "path_of", "preallocated_caches", "program_inputs", "replace_leaves",
]  # fmt: skip


def path_of(key_path: tuple[Any, ...]) -> Path:
    """The plain form of a pytree key path: ``("cache", "key_cache", 0)``."""
    return tuple(_plain(key) for key in key_path)


def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Path, Any]:
    """Every leaf of the arguments that is not None, by path.

    Paths of positional arguments start with their index, those of named ones with their name.
    """
    register_pytrees()
    found: dict[Path, Any] = {}
    for tree in (args, kwargs):
        for key_path, leaf in pytree.tree_flatten_with_path(tree)[0]:
            if leaf is not None:
                found[path_of(key_path)] = leaf
    return found


def preallocated_caches(args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[Path]:
    """Where caches stand that are allocated whole, as transformers' ``StaticCache`` is.

    One that was not used yet has no tensors, and is not of length 0 for that.
    """
    register_pytrees()
    leaves = (
        pair
        for tree in (args, kwargs)
        for pair in pytree.tree_flatten_with_path(tree, is_leaf=_is_preallocated)[0]
    )
    return {path_of(key_path) for key_path, leaf in leaves if _is_preallocated(leaf)}


def _is_preallocated(value: Any) -> bool:
    layers = getattr(value, "layers", None)
    return isinstance(layers, list) and any(hasattr(layer, "max_cache_len") for layer in layers)


def replace_leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], *, change: Callable[[Path, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with each leaf replaced by ``change(path, leaf)``."""
    register_pytrees()

    def changed(key_path: tuple[Any, ...], leaf: Any) -> Any:
        return change(path_of(key_path), leaf)

    return (
        pytree.tree_map_with_path(changed, args),
        pytree.tree_map_with_path(changed, kwargs),
    )


def program_inputs(program: ExportedProgram) -> Iterator[tuple[Path, torch.fx.Node]]:
    """Where each tensor, and each integer that is dynamic, stands in the call, and its node."""
    register_pytrees()
    if program.example_inputs is None:
        raise UsageError(
            "the exported program has no example inputs, so its arguments have no names; "
            "export it again with torch.export.export(...) and save it with them"
        )
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [
        spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"
    ]
    for (path, _), argument in zip(flat_arguments(program), specs, strict=True):
        node = nodes.get(argument.name)
        example = None if node is None else node.meta.get("val")
        dynamic = isinstance(example, torch.SymInt) and fixed_integer(example) is None
        if node is not None and (dynamic or isinstance(example, torch.Tensor)):
            yield path, node


def flat_arguments(program: ExportedProgram) -> list[tuple[Path, Any]]:
    """Every leaf of the arguments a program was exported with, None too, in torch's order."""
    args, kwargs = program.example_inputs or ((), {})
    pairs = pytree.tree_flatten_with_path(args)[0] + pytree.tree_flatten_with_path(kwargs)[0]
    return [(path_of(key_path), leaf) for key_path, leaf in pairs]


def containers_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Path, str]:
    """Every list, tuple and dictionary within the arguments, and every None, in a few words.

    Code may ask for the length of a list, walk a dictionary in its order, or ask for None.
    """
    found: dict[Path, str] = {}

    def describe(path: Path, value: Any) -> None:
        if value is None:
            found[path] = "None"
        elif type(value) in (list, tuple):
            found[path] = f"a {type(value).__name__} of {len(value)}"
            items: Any = enumerate(value)
        elif type(value) in (dict, OrderedDict):
            found[path] = f"a {type(value).__name__} of {', '.join(map(repr, value)) or 'nothing'}"
            items = value.items()
        if path in found and value is not None:
            for key, item in items:
                describe((*path, key if isinstance(key, str | int) else f"[{key!r}]"), item)

    for position, value in enumerate(args):
        describe((position,), value)
    for name, value in kwargs.items():
        describe((name,), value)
    return found


def fixed_integer(example: Any) -> int | None:
    """The number of an integer that had to be dynamic and that the code made a constant."""
    text = str(example) if isinstance(example, torch.SymInt) else ""
    return int(text) if text.lstrip("-").isdecimal() else None


def input_sizes(node: torch.fx.Node) -> dict[int, Any]:
    """The sizes an input of an exported program has, by axis; an integer's own value at -1."""
    example = node.meta["val"]
    return dict(enumerate(example.shape)) if hasattr(example, "shape") else {-1: example}


def named_path(program: ExportedProgram, path: Path) -> Path:
    """The path with the parameter's name in place of a position; ``xs_0`` of ``*xs``."""
    names = program.module_call_graph[0].signature.forward_arg_names or ()
    first, *rest = path
    return (names[first], *rest) if isinstance(first, int) and first < len(names) else path


def _plain(key: Any) -> str | int:
    match key:
        case pytree.SequenceKey(idx=index):
            return int(index)
        case pytree.GetAttrKey(name=name):
            return str(name)
        case pytree.MappingKey(key=name):
            # Another key is written so that no string is like it: 1.5 and "1.5" are two.
            return name if isinstance(name, str | int) else f"[{name!r}]"
    return str(key)
