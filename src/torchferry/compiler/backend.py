"""``torch.compile(model, backend="torchferry")``."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from torchferry.compiler import cache as disk
from torchferry.compiler.cached import CachedGraph, entry_key
from torchferry.compiler.cuda import Provider
from torchferry.compiler.key import graph_key, static_positions
from torchferry.compiler.record import Settings
from torchferry.compiler.session import TensorSession
from torchferry.compiler.weights import FrozenWeights
from torchferry.errors import UsageError
from torchferry.optimizer.options import OptimizationOptions
from torchferry.seams.tracing import aot_metadata

# What translates a graph is imported where a graph is: one from the cache needs none of it.
if TYPE_CHECKING:
    from torchferry.compiler.compiled import CompiledGraph, Keep
    from torchferry.compiler.graph import Translated

__all__ = ["onnx_custom_backend"]

_log = logging.getLogger("torchferry")

_OPSET = 23  # no file has to be read by an older onnxruntime: the graph runs where it is made

_KINDS: dict[str, tuple[Any, str]] = {
    "target_opset": (int, "a number"),
    "optimize": (bool, "True or False"),
    "storage": (MutableMapping, "a dictionary"),
    "dump_prefix": (str, "a string"),
    "providers": ((list, tuple), "a list of onnxruntime's execution providers"),
    "session_options": (Mapping, "a dictionary of onnxruntime's session options"),
    "keep_values": (bool, "True or False"),
    "cache": (bool, "True or False"),
    "verify": (bool, "True or False"),
    "verbose": (int, "a number"),
}


def onnx_custom_backend(
    graph_module: fx.GraphModule,
    args: Sequence[Any],
    *,
    target_opset: int | None = None,
    options: OptimizationOptions | Mapping[str, Any] | None = None,
    optimize: bool = True,
    storage: MutableMapping[str, Any] | None = None,
    dump_prefix: str | None = None,
    providers: Sequence[Provider] | None = None,
    session_options: Mapping[str, Any] | None = None,
    keep_values: bool = False, cache: bool = True, verify: bool = False,
    verbose: int = 0, mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph of ``torch.compile`` for onnxruntime.

    Without gradients parameters and buffers become weights of the session, which is made anew
    when they change; with gradients they are inputs, and the backward graph is compiled as well.
    Operators that onnxruntime cannot run, and those that draw random numbers, run in PyTorch: a
    log line names them.

    Args:
        graph_module: what dynamo captured, or a graph of AOTAutograd as its ``fw_compiler``.
        args: what it is called with.
        target_opset: ONNX operator set; 23 when ``None``, the first with a whole attention.
        options: the rewrites, or a dictionary of arguments of this function and of these.
        optimize: rewrite the graph at all.
        storage: gets a dictionary for each session, see `record`, under ``"instance"``.
        dump_prefix: write ``PREFIX_0.onnx`` and so on, and the FX graphs in ``PREFIX_0.txt``.
        providers: onnxruntime's execution providers, or pairs with options (the CUDA one captures
            graphs with ``enable_cuda_graph``); by the tensors' device when ``None``.
        session_options: of onnxruntime: ``{"intra_op_num_threads": 2}``; entries with a dot too.
        keep_values: keep copies of what each call is given and returns in the storage.
        cache: keep graphs of fixed sizes on disk, see `read_config`; not with a storage or a dump.
        verify: hold each graph's first call at each set of sizes to PyTorch: see `verified`.
        verbose: 1 logs every graph.
        mode: what ``torch.compile(..., mode=...)`` gives; there is none but ``"default"``.

    Returns:
        A function that is called as the graph is.

    Raises:
        UsageError: an unknown opset, option, mode or set of rewrites, or one of the wrong type.
    """
    own = {"target_opset": target_opset, "optimize": optimize, "storage": storage,
           "dump_prefix": dump_prefix, "providers": providers, "keep_values": keep_values,
           "cache": cache, "verify": verify, "verbose": verbose,
           "session_options": session_options}  # fmt: skip
    _check_mode(mode)
    return _compile(graph_module, args, _settings(own, options))


def _check_mode(mode: str | None) -> None:
    if mode not in (None, "default"):
        raise UsageError(
            f"mode={mode!r} is inductor's: choose the rewrites instead, as in "
            'options={"patterns": "default+onnxruntime+experimental"}'
        )


def _settings(
    own: dict[str, Any], options: OptimizationOptions | Mapping[str, Any] | None
) -> Settings:
    """The settings of a call; those in a dictionary of options come first."""
    if isinstance(options, Mapping):
        rewrites = {field.name for field in dataclasses.fields(OptimizationOptions)} - own.keys()
        unknown = sorted(options.keys() - own.keys() - rewrites)
        if unknown:
            known = ", ".join(sorted(own.keys() | rewrites))
            raise UsageError(f"unknown option {unknown[0]!r}: choose {known}")
        own = own | {name: options[name] for name in options.keys() & own.keys()}
        options = OptimizationOptions(**{k: options[k] for k in options.keys() & rewrites})
    for name, (kinds, told) in _KINDS.items():
        if own[name] is not None and not isinstance(own[name], kinds):
            raise UsageError(f"{name}={own[name]!r} must be {told}")
    opset = own.pop("target_opset")
    optimize = own.pop("optimize")
    patterns = f"default+onnxruntime{'' if opset is None else '-RaiseOpset'}"
    return Settings(
        opset=_OPSET if opset is None else _checked(opset),
        options=(options or OptimizationOptions(patterns)) if optimize else None,
        **own,
    )


def _checked(opset: int) -> int:
    from torchferry.converter.convert import check_opset

    return check_opset(opset)


def _compile(
    module: fx.GraphModule, args: Sequence[Any], settings: Settings
) -> Callable[..., Any]:
    if settings.verify:
        return _compile_verified(module, args, settings)
    key, frozen = _key(module, args, settings), static_positions(args)
    if key is not None:
        found = CachedGraph(key, frozen, settings, _later(module, settings))
        if found.load(args) is not None:
            return found
    return _compile_now(module, args, settings, key)


def _compile_verified(
    module: fx.GraphModule, args: Sequence[Any], settings: Settings
) -> Callable[..., Any]:
    from torchferry.compiler.verified import verified

    plain = copy.deepcopy(module)  # compiling rewrites a graph
    run = _compile(module, args, dataclasses.replace(settings, verify=False))
    return verified(plain, run, settings)


def _key(module: fx.GraphModule, args: Sequence[Any], settings: Settings) -> str | None:
    """The graph's name in the cache; ``None`` when it is not to be looked for there."""
    seen = settings.storage is not None or settings.dump_prefix or settings.keep_values
    if not settings.cache or seen or settings.providers not in (None, ["CPUExecutionProvider"]):
        return None
    grad = torch.is_grad_enabled() and any(getattr(arg, "requires_grad", False) for arg in args)
    return None if grad or aot_metadata() is not None else graph_key(module, args, settings)


def _later(module: fx.GraphModule, settings: Settings) -> Callable[..., Any]:
    """The graph, to be captured again and compiled when it is called, outside of dynamo."""
    backend = functools.partial(_compile, settings=dataclasses.replace(settings, cache=False))
    return torch.compile(module, backend=backend, dynamic=False)


def _compile_now(
    module: fx.GraphModule, args: Sequence[Any], settings: Settings, key: str | None
) -> Callable[..., Any]:
    from torchferry.compiler import aot
    from torchferry.compiler.compiled import CompiledGraph
    from torchferry.compiler.views import separate_views
    from torchferry.seams.dynamo import TorchDynamoException

    def made(graph: fx.GraphModule, frozen: Sequence[int]) -> CompiledGraph:
        separate_views(graph)
        return CompiledGraph(graph, frozen, settings)

    if aot.inside_aot():
        return made(module, ()).boxed
    plain: list[CompiledGraph] = []

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        compiled = made(graph, aot.static_inputs())
        if aot.is_plain(graph, args):
            plain.append(compiled)
        return compiled.boxed

    def training(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return made(graph, ()).boxed

    try:
        run = aot.trace(module, args, inference=inference, training=training)
    except TorchDynamoException:
        raise  # how dynamo asks for another try
    except (RuntimeError, TypeError, AssertionError) as error:
        _log.warning("a graph runs in eager, AOTAutograd cannot trace it: %s", error)
        return module.forward
    if key is not None and plain:
        plain[0].keep = _keep(key, static_positions(args))
    return plain[0].unboxed if plain else run


def _keep(key: str, frozen: Sequence[int]) -> Keep:
    """What puts the sessions of a graph into the cache."""

    def keep(made: Translated, session: TensorSession, weights: FrozenWeights) -> None:
        if list(weights.tensors) != list(frozen):
            return  # weights that are no longer frozen
        name = entry_key(key, list(weights.tensors.values()))
        if name is not None:
            disk.store(name, session.proto, made, weights.tensors)

    return keep
