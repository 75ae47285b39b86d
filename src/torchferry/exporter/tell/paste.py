"""Python to paste: inputs like those seen, and the export with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from torchferry.dims.spec import shapes_source
from torchferry.errors import UsageError
from torchferry.observer.model_inputs import ModelInputs
from torchferry.values.caches import cache_pairs

__all__ = ["Pasted", "export_source"]

_DRAWN = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # torch.rand makes them
_PLAIN = bool | int | float | str | None
_REGISTER = ("torchferry.values", "register_pytrees")
_LAYERS = {"DynamicLayer": "make_dynamic_cache", "StaticLayer": "make_static_cache",
           "DynamicSlidingWindowLayer": "make_sliding_window_cache"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pasted:
    """Python in three parts, which run in this order where ``model`` is defined.

    Attributes:
        inputs: makes ``args`` and ``kwargs`` of the shapes, dtypes and ranges seen.
        export: ``torch.export.export`` with hints; makes ``program``.
        onnx: ``torch.onnx.export`` with names; makes ``onnx_program``.
        missing: names the user must define first: values that have no literal form.
    """

    inputs: str
    export: str
    onnx: str
    missing: tuple[str, ...] = ()


def export_source(given: ModelInputs) -> Pasted:
    """Write the export of a model as Python.

    Constants given by name are bound to ``forward`` instead of passed: torch.export takes no
    ``**kwargs``, and torch.onnx gives dimensions their names only when every argument is a tensor.

    Args:
        given: two or more sets of inputs; what one set cannot tell is left to torch (AUTO).
    """
    args, kwargs = given.best
    hints = given.export_arguments(bool(given.unknown))[2]
    names = hints if given.integers else given.export_arguments(auto="")[2]
    if not given.positional:
        # Of positional arguments torch.onnx takes a last dictionary for the named ones.
        args, kwargs, _ = given.move_to_kwargs(args, kwargs, ((), hints))
    bound = {
        name: value
        for name, value in kwargs.items()
        if value is not None and isinstance(value, _PLAIN) and hints[name] is None
    }
    passed = {n: v for n, v in kwargs.items() if n not in bound and v is not None}
    shown = [name for name in hints if name not in kwargs or name in passed]
    writer = _Writer()
    lines = [
        f"args = {writer.write(args, 'args')}",
        "kwargs = {",
        *(f"    {name!r}: {writer.write(value, name)}," for name, value in passed.items()),
        "}",
    ]
    if bound:
        constants = ", ".join(f"{name}={value!r}" for name, value in bound.items())
        writer.imports.add(("functools", ""))
        lines.append(f"model.forward = functools.partial(model.forward, {constants})")
    extra = [name for name in passed if name in given.keywords]
    if extra:
        writer.imports.add(("torchferry.observer.keywords", "explicit_keywords"))
    return Pasted(
        inputs="\n".join([*writer.preamble(), "", *lines]),
        export=_call(
            "program = torch.export.export", "kwargs", {n: hints[n] for n in shown}, extra
        ),
        onnx=_call(
            "onnx_program = torch.onnx.export",
            "kwargs=kwargs, dynamo=True",
            {n: names[n] for n in shown},
            extra,
        ),
        missing=tuple(writer.missing),
    )


def _call(function: str, kwargs: str, shapes: dict[str, Any], keywords: list[str]) -> str:
    """The shapes, and the call of a function with them."""
    explicit = f", explicit_keywords(model, {keywords})" if keywords else ""
    return "\n".join(
        [
            "dynamic_shapes = {",
            *(f"    {name!r}: {shapes_source(shape)}," for name, shape in shapes.items()),
            "}",
            f"with torch.no_grad(){explicit}:",
            f"    {function}(",
            f"        model, args, {kwargs}, dynamic_shapes=dynamic_shapes",
            "    )",
        ]
    )


class _Writer:
    """Writes values as Python, and remembers what that needs.

    Attributes:
        imports: what to import, as ``(module, name)``; the whole module when there is no name.
        missing: names of values it could not write.
        registered: dataclasses that torch must see inside.
    """

    def __init__(self) -> None:
        self.imports = {("torch", ""), ("torch.export", "Dim")}
        self.missing: list[str] = []
        self.registered: dict[str, None] = {}

    def preamble(self) -> list[str]:
        """The imports, sorted, and what caches need."""
        whole = sorted(module for module, name in self.imports if not name)
        modules = sorted({module for module, name in self.imports if name})
        lines = [f"import {module}" for module in whole]
        for module in modules:
            names = sorted(name for home, name in self.imports if home == module and name)
            lines.append(f"from {module} import {', '.join(names)}")
        if _REGISTER in self.imports:
            classes = ", ".join(self.registered)
            lines += ["", "register_pytrees()  # so that torch sees inside caches"]
            lines += [f"register_pytrees({classes})"] if classes else []
        return lines

    def write(self, value: Any, name: str) -> str:
        """An expression that makes a value like this one.

        Args:
            value: any argument.
            name: what it is called, for a value that has no literal form.
        """
        if isinstance(value, torch.Tensor):
            return _tensor_source(value)
        if isinstance(value, _PLAIN):
            return _plain_source(value)
        if isinstance(value, torch.dtype | torch.device):
            return repr(value) if isinstance(value, torch.dtype) else f"torch.{value!r}"
        if type(value) in (list, tuple):
            items = [self.write(item, f"{name}_{i}") for i, item in enumerate(value)]
            inner = ", ".join(items) + ("," if type(value) is tuple and len(items) == 1 else "")
            return f"[{inner}]" if type(value) is list else f"({inner})"
        if type(value) is dict:
            pairs = [f"{k!r}: {self.write(v, f'{name}_{k}')}" for k, v in value.items()]
            return f"{{{', '.join(pairs)}}}"
        written = self._cache(value, name) or self._dataclass(value, name)
        if written is None:
            self.missing.append(name)
        return written or name

    def _pairs(self, cache: Any, name: str) -> str:
        pairs: Sequence[tuple[Any, Any]] = cache_pairs(cache)
        return self.write([tuple(pair) for pair in pairs], name)

    def _cache(self, value: Any, name: str) -> str | None:
        kind = type(value).__name__
        if kind == "EncoderDecoderCache":
            parts = [value.self_attention_cache, value.cross_attention_cache]
            layers = [layer for part in parts for layer in part.layers]
            maker, more = "make_encoder_decoder_cache", ""
            if {type(layer).__name__ for layer in layers} - {"DynamicLayer"}:
                return None
        elif kind in ("DynamicCache", "StaticCache"):
            parts, layers = [value], value.layers
            classes = {type(layer).__name__ for layer in layers} or {"DynamicLayer"}
            windows = {getattr(layer, "sliding_window", None) for layer in layers} - {None}
            if len(classes) > 1 or len(windows) > 1 or not classes <= _LAYERS.keys():
                return None
            maker = _LAYERS[classes.pop()]
            more = "".join(f", {window}" for window in windows)
        else:
            return None
        try:
            pairs = ", ".join(self._pairs(part, name) for part in parts)
        except UsageError:  # a layer that holds no tensors
            return None
        self.imports |= {_REGISTER, ("torchferry.values", maker)}
        return f"{maker}({pairs}{more})"

    def _dataclass(self, value: Any, name: str) -> str | None:
        cls = type(value)
        if not dataclasses.is_dataclass(value) or "." in cls.__qualname__:
            return None
        self.imports |= {_REGISTER, (cls.__module__, cls.__name__)}
        self.registered[cls.__name__] = None
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        written = [
            f"{key}={self.write(item, f'{name}_{key}')}"
            for key, item in fields.items()
            if item is not None
        ]
        return f"{cls.__name__}({', '.join(written)})"


def _plain_source(value: Any) -> str:
    special = isinstance(value, float) and repr(value) in ("nan", "inf", "-inf")
    return f"float({str(value)!r})" if special else repr(value)


def _tensor_source(tensor: torch.Tensor) -> str:
    """A tensor of the same shape, dtype and range of values."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    text = repr(dtype)
    if not tensor.numel():
        return f"torch.zeros({shape}, dtype={text})"
    if dtype.is_complex:
        return f"torch.randn({shape}, dtype={text})"
    values = tensor.detach().to(torch.float64 if dtype.is_floating_point else torch.int64)
    low, high = values.min().item(), values.max().item()
    if low == high or low != low:  # noqa: PLR0124  (true of NaN only)
        value = bool(low) if dtype is torch.bool else low
        return f"torch.full({shape}, {_plain_source(value)}, dtype={text})"
    if dtype is torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if not dtype.is_floating_point:
        made = f"torch.randint({low}, {int(high) + 1}, {shape})"
        return made if dtype is torch.int64 else f"{made}.to({text})"
    drawn = f"torch.{'randn' if low < 0 else 'rand'}({shape}"
    if dtype is torch.float32:
        return f"{drawn})"
    return f"{drawn}, dtype={text})" if dtype in _DRAWN else f"{drawn}).to({text})"
