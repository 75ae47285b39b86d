"""The tensors that a program or an ONNX model takes, found in nested arguments, or drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.converter.signature import read_signature
from torchferry.dims import Condition, evaluate, names_in, parse_size
from torchferry.errors import UsageError
from torchferry.observer.naming import input_name
from torchferry.observer.tree import leaves_of, program_inputs
from torchferry.runner.dimensions import check_sizes, feed_sizes, named_axes
from torchferry.runner.feeds import Feeder, InputInfo
from torchferry.values.flatten import Path
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = [
    "draw_feeds",
    "model_feeds",
    "program_feeds",
    "unmet_by_model",
    "unmet_by_program",
]

_TORCH_NAMES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn",
                "float8e5m2": "float8_e5m2"}  # fmt: skip
_SHORT = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def program_feeds(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The tensors a program takes, in its order; of a number, one of no dimension.

    Raises:
        UsageError: the arguments do not fit.
    """
    signature = read_signature(program)
    # A program takes complex numbers as they are.
    feeder = Feeder(replace(signature, conditions=(), complex=()), _infos(program, signature))
    feeds = feeder(args, kwargs)
    return [feeds[slot.name] for slot in signature.inputs]


def _infos(program: ExportedProgram, signature: Signature) -> dict[str, InputInfo]:
    return {
        slot.name: _taken(node.meta["val"])
        for slot, (_, node) in zip(signature.inputs, program_inputs(program), strict=True)
    }


def unmet_by_program(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """Conditions on sizes that arguments do not meet.

    They refuse nothing here: the values themselves are compared, also where they went wrong.

    Raises:
        UsageError: the arguments do not fit.
    """
    signature = read_signature(program)
    names = [slot.name for slot in signature.inputs]
    feeds = dict(zip(names, program_feeds(program, args, kwargs), strict=True))
    return _unmet(signature, _infos(program, signature), feeds)


def unmet_by_model(model: ir.Model, feeds: Mapping[str, torch.Tensor]) -> list[str]:
    """The same of an ONNX model that torchferry wrote; none of others, which do not tell.

    Raises:
        UsageError: sizes that are to agree do not.
    """
    text = model.metadata_props.get(SIGNATURE_KEY)
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    if text is None:
        return []
    return _unmet(Signature.from_json(text), dict(map(_info, inputs)), feeds)


def _unmet(
    signature: Signature, infos: Mapping[str, InputInfo], feeds: Mapping[str, torch.Tensor]
) -> list[str]:
    if not signature.conditions:
        return []
    shapes = {name: shape for name, (_, shape) in infos.items()}
    axes = named_axes(shapes, tuple(feeds), signature.integers)
    known = check_sizes(feed_sizes(feeds, signature.integers), axes)
    return [text for one in signature.conditions if (text := _broken(one, known))]


def _broken(stored: Sequence[Any], known: Mapping[str, int]) -> str:
    """A condition in words, if sizes do not meet it, or nobody can say; else ``""``."""
    try:
        condition = Condition(*stored)
        broken = not condition.unknown(known) and not condition.holds(known)
        return str(condition) if broken else ""
    except ValueError:
        return f"{stored[0]} of {', '.join(stored[1])}"


def _taken(example: Any) -> InputInfo:
    if isinstance(example, torch.Tensor):
        return example.dtype, [s if isinstance(s, int) else str(s) for s in example.shape]
    return (torch.int64 if isinstance(example, int | torch.SymInt) else torch.float32), ()


def model_feeds(
    model: ir.Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    names: Sequence[str | int] = (),
) -> dict[str, torch.Tensor]:
    """The tensors of an ONNX model's inputs, found in the arguments of the original model.

    A file that torchferry wrote says where each stands. Of others, inputs are found by name, and
    what is left in order, when there are as many as tensors. A dictionary of tensors by name fits
    any model.

    Args:
        model: the ONNX model.
        args: positional arguments.
        kwargs: the others by name.
        names: of the positional arguments, where they are known.

    Raises:
        UsageError: the arguments do not fit.
    """
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    _check_precision(inputs, leaves_of(args, dict(kwargs)).values())
    found = _found(model, inputs, args, kwargs, names)
    return {str(value.name): _checked(value, found[str(value.name)]) for value in inputs}


def _check_precision(inputs: Sequence[ir.Value], leaves: Iterable[Any]) -> None:
    """Refuse arguments none of which is of a floating dtype that the ONNX model takes.

    Raises:
        UsageError: they are; says how to have the model in that dtype.
    """
    wanted = {_info(v)[1][0]: v.name for v in inputs if v.dtype and v.dtype.is_floating_point()}
    given = {
        leaf.dtype
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    }
    known = wanted.keys() <= _SHORT.keys() and given <= _SHORT.keys()
    if known and wanted and given and wanted.keys().isdisjoint(given):
        dtype, name = next(iter(wanted.items()))
        raise UsageError(
            f"input {name} of the ONNX model is {dtype}, and the inputs are "
            f"{', '.join(sorted(map(str, given)))}: both sides need one dtype (--dtype "
            f"{_SHORT[dtype]} casts a module and its inputs)"
        )


def _found(
    model: ir.Model,
    inputs: Sequence[ir.Value],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    positional: Sequence[str | int],
) -> dict[str, torch.Tensor]:
    names = [str(value.name) for value in inputs]
    if set(kwargs) == set(names) and all(isinstance(v, torch.Tensor) for v in kwargs.values()):
        return {name: kwargs[name] for name in names}
    if SIGNATURE_KEY in model.metadata_props:
        signature = Signature.from_json(model.metadata_props[SIGNATURE_KEY])
        # See `unmet_by_model`.
        signature = replace(signature, conditions=(), relies=(), unproven="")
        return Feeder(signature, dict(map(_info, inputs)))(args, dict(kwargs))
    leaves = {
        _with_name(path, positional): leaf
        for path, leaf in leaves_of(args, dict(kwargs)).items()
        if isinstance(leaf, torch.Tensor)
    }
    by_name = {input_name(path): leaf for path, leaf in leaves.items()}
    if set(names) <= set(by_name):
        return {name: by_name[name] for name in names}
    if len(names) == len(by_name) == len(leaves):
        left = iter([leaf for name, leaf in by_name.items() if name not in names])
        return {name: by_name[name] if name in by_name else next(left) for name in names}
    raise UsageError(
        f"the ONNX model takes {_listed(names)}, and the arguments hold {_listed([*by_name])}: "
        "give one tensor for each input, or name the inputs as the model's arguments are (the "
        "input_names of torch.onnx.export)"
    )


def _with_name(path: Path, names: Sequence[str | int]) -> Path:
    """A path that begins with a parameter's name in the place of a position."""
    first = path[0]
    known = isinstance(first, int) and first < len(names)
    return (names[int(first)], *path[1:]) if known else path


def _checked(value: ir.Value, tensor: torch.Tensor) -> torch.Tensor:
    """What an input is given: the tensor, or the pairs of numbers of a complex one."""
    dtype, shape = _info(value)[1]
    if tensor.is_complex() and not dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    fits = value.shape is None or (
        len(shape) == tensor.ndim
        and all(
            not isinstance(size, int) or size == got
            for size, got in zip(shape, tensor.shape, strict=True)
        )
    )
    if not fits or (value.dtype is not None and tensor.dtype != dtype):
        raise UsageError(
            f"input {value.name} of the ONNX model is {dtype} {list(shape)}, and what is given is "
            f"{tensor.dtype} {list(tensor.shape)}"
        )
    return tensor


def _info(value: ir.Value) -> tuple[str, InputInfo]:
    name = value.dtype.name.lower() if value.dtype is not None else "float"
    sizes = () if value.shape is None else tuple(value.shape)
    shape = [size if isinstance(size, int) else size.value for size in sizes]
    return str(value.name), (getattr(torch, _TORCH_NAMES.get(name, name)), shape)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(chain(names[:8], ["…"] * (len(names) > 8)))
    return f"{len(names)} inputs ({shown})"


def draw_feeds(model: ir.Model) -> dict[str, torch.Tensor]:
    """Inputs that fit an ONNX model.

    Numbers are of order 1, integers 0 and 1, and dynamic sizes 2, 3, 4 and so on.

    Raises:
        UsageError: an input has no shape or type.
    """
    generator = torch.Generator().manual_seed(0)
    sizes: dict[str, int] = {}
    found = {}
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        if value.shape is None or value.dtype is None:
            raise UsageError(f"input {value.name} has no shape or type: give inputs")
        shape = [_size(axis, sizes) for axis in value.shape]
        if value.dtype.is_floating_point():
            drawn = torch.randn(shape, generator=generator)
        else:
            drawn = torch.randint(0, 2, shape, generator=generator)
        _, (dtype, _) = _info(value)
        found[str(value.name)] = drawn.to(dtype)
    return found


def _size(axis: Any, sizes: dict[str, int]) -> int:
    text = axis if isinstance(axis, int) else axis.value
    if isinstance(text, int):
        return text
    size = parse_size(text) if text else None
    if size is None:
        return 2
    for name in names_in(size):
        sizes.setdefault(name, 2 + len(sizes))
    return evaluate(size, sizes)
