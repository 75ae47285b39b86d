"""What a compiled graph depends on, as a name for it on disk."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch import fx

import torchferry.config
from torchferry.compiler.record import Settings
from torchferry.seams.pytorch import OpOverloadPacket, any_autocast, is_static_input

__all__ = ["content_key", "graph_key", "static_positions"]

_PLAIN = (int, float, str, bool, complex, type(None), type(...), torch.dtype, torch.device,
          torch.layout, torch.memory_format)  # fmt: skip
_MODULES = ("torch", "_operator", "operator", "math", "builtins")
_NAMESPACES = ("aten", "prim", "prims")
_KINDS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ROOMS = ("compiler", "converter", "dims", "graph", "optimizer")
_MOST = 2**32  # bytes of weights; reading more takes longer than compiling


class _Strange(Exception):  # noqa: N818  (it is no error: the graph is not cached)
    """Something in a graph that has no text of its own, or may mean something else next time."""


def graph_key(module: fx.GraphModule, args: Sequence[Any], settings: Settings) -> str | None:
    """The name of a graph that dynamo captured: all that its ONNX form depends on but weights.

    Args:
        module: only operators of PyTorch itself have a meaning that stays.
        args: tensors of fixed shapes, on the CPU.
        settings: what the user asked for.

    Returns:
        ``None`` when there is no such name: sizes vary, or the graph calls something that is not
        PyTorch's.
    """
    asked = settings.options
    if any_autocast() or not isinstance(asked and asked.patterns, (str, type(None))):
        return None
    try:
        parts = [_versions(), *_described(args), *_lines(module)]
    except _Strange:
        return None
    folding = asked and asked.constant_folding
    parts += [
        f"{settings.opset} {settings.providers} {asked and asked.patterns}",
        f"{folding if isinstance(folding, bool) else sorted(folding or ())}",
        f"{asked and (asked.processor, asked.max_iter)} {torch.get_default_dtype()}",
        f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def static_positions(args: Sequence[Any]) -> list[int]:
    """Parameters and buffers among the arguments that dynamo gives a graph."""
    return [i for i, arg in enumerate(args) if is_static_input(arg)]


def content_key(tensors: Sequence[torch.Tensor]) -> str | None:
    """A name for the content of weights; ``None`` when they are too large to be read for it."""
    if sum(tensor.nbytes for tensor in tensors) > _MOST:
        return None
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)}{tensor.stride()}{tensor.dtype}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()[:32]


def _bytes(tensor: torch.Tensor) -> Any:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy() if flat.numel() else b""


@cache
def _versions() -> str:
    """Of all that takes part; of this package its files, which change while it is developed."""
    package = Path(torchferry.config.__file__).parent
    files = sorted(file for room in _ROOMS for file in (package / room).rglob("*.[ph]*"))
    stamps = [(str(f.relative_to(package)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    found = (torch.__version__, onnxruntime.__version__, onnx.__version__,
             platform.python_version(), platform.machine())  # fmt: skip
    return f"{found} {hashlib.sha256(str(stamps).encode()).hexdigest()}"


def _described(args: Sequence[Any]) -> Iterator[str]:
    static = {*static_positions(args)}
    for i, arg in enumerate(args):
        if type(arg) not in _KINDS or arg.device.type != "cpu" or arg.layout != torch.strided:
            raise _Strange
        shape = (*arg.shape, *arg.stride())
        if not all(type(size) is int for size in shape) or arg.is_neg() or arg.is_conj():
            raise _Strange
        yield f"{shape} {arg.dtype} {arg.requires_grad} {i in static}"


def _lines(module: fx.GraphModule) -> Iterator[str]:
    for node in module.graph.nodes:
        if isinstance(node.meta.get("example_value"), _SYMBOLIC):
            raise _Strange  # AOTAutograd may take its value for a constant
        yield f"{node.op} {node.name} {_target(node)} {_text(node.args)} {_text(node.kwargs)}"
        if node.op == "get_attr":
            yield from _attribute(module, str(node.target))


def _target(node: fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, str):
        if node.op == "call_module":
            raise _Strange
        return target
    packet = getattr(target, "overloadpacket", target)
    if isinstance(packet, OpOverloadPacket):
        if str(packet).split(".")[0] not in _NAMESPACES:
            raise _Strange
        return str(target)
    home = getattr(target, "__module__", None) or ""
    if home.split(".")[0] not in _MODULES:
        raise _Strange
    return f"{home}.{getattr(target, '__qualname__', target)}"


def _text(value: Any) -> str:
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if type(value) in _PLAIN:
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, slice):
        return f"slice{_text((value.start, value.stop, value.step))}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())})"
    raise _Strange


def _attribute(module: fx.GraphModule, name: str) -> Iterator[str]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    if isinstance(found, fx.GraphModule):
        yield from _lines(found)
    elif isinstance(found, torch.Tensor) and (key := content_key([found])) is not None:
        yield key
    else:
        raise _Strange
