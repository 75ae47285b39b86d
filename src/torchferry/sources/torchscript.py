"""TorchScript archives: ``torch.jit`` alone loads them, which runs no Python.

``torch.export`` does not trace a ``ScriptModule``. Its graph is therefore read into steps, which a
plain module runs one after the other: the same operators on the same weights, so that the module
can be watched, captured and compared as any other.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.judge.tolerance import Tolerance
from torchferry.sources.arguments import Arguments
from torchferry.sources.loaded import Loaded
from torchferry.sources.script_nodes import FUNCTIONS, UNPACKING, call_operator
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["is_torchscript", "load_torchscript"]


def is_torchscript(text: str) -> bool:
    """Whether a text names an archive that ``torch.jit.save`` wrote, or a module in one.

    Such an archive holds code and constants; any other zip file of torch's is a pickle.
    """
    path, _ = _split(text)
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        inner = [name.partition("/")[2] for name in archive.namelist()]
        return "constants.pkl" in inner and any(name.startswith("code/") for name in inner)
    return False


def load_torchscript(text: str) -> Loaded:
    """Load an archive as a plain module, in eval mode. Its inputs have to be given.

    Args:
        text: ``FILE``, or ``FILE:encoder.layer`` for one of its modules.

    Raises:
        UsageError: the file is damaged, has no such module, or holds nodes that cannot be read:
            names them all.
    """
    path, part = _split(text)
    script, error = attempt(lambda: _load(path))
    if error is not None:
        reason = str(error).strip().partition("\n")[0][:200]
        raise UsageError(f"{path} cannot be read as a TorchScript archive: {reason}") from error
    modules = dict(script.named_modules())
    if not hasattr(modules.get(part), "forward"):
        close = get_close_matches(part, modules) or list(modules)[1:4]
        raise UsageError(f"{path} has no module {part!r} to call; it has {', '.join(close)}")
    script = modules[part]
    reader = _Reader(script)
    graph = script.inlined_graph
    steps = reader.read(graph)
    if reader.unknown:
        raise UsageError(
            f"{text} uses {', '.join(sorted(reader.unknown))}, which torchferry does not read; "
            "give the model's own code: package.module:factory"
        )
    body = _Block(steps, _names(graph.inputs())[1:], _names(graph.outputs()))
    model = _plain_class(script, body)(reader.root).eval()
    return Loaded(model, check=partial(_check, text, script, model))


def _split(text: str) -> tuple[Path, str]:
    """The file, and the module in it: empty for the whole."""
    place, _, part = text.rpartition(":")
    return (Path(place), part) if place and not Path(text).is_file() else (Path(text), "")


def _check(
    text: str, script: torch.jit.ScriptModule, model: nn.Module, sets: list[Arguments]
) -> None:
    """Compare the steps with the archive itself, run by ``torch.jit``; both may have a state."""
    model = copy.deepcopy(model)
    tolerance = Tolerance.usual(model, sets)
    for number, (args, kwargs) in enumerate(sets, 1):
        results = []
        for module in (script, model):
            given, named = clone((args, kwargs))
            with random_kept(), torch.no_grad():
                torch.manual_seed(0)
                results.append(attempt(partial(module, *given, **named)))
        (expected, refusal), (result, error) = results
        if refusal is not None:
            return  # the model refuses too, and says so where it is run
        difference = None if error is not None else max_diff(expected, result)
        if difference is None or not tolerance.allows(difference):
            raise UsageError(
                f"{text} was read wrong: on input set {number} torch.jit computes something else "
                f"({error or difference}). Please report it, with the file if you may share it"
            )


def _load(path: Path) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; its files are still there
        load: Any = torch.jit.load
        script: torch.jit.ScriptModule = load(str(path), map_location="cpu")
    return script.eval()


@dataclass(frozen=True)
class _Step:
    """One node.

    Attributes:
        run: takes the module, the values of the inputs and the blocks; returns the outputs.
        inputs: names of values.
        outputs: names of values.
        blocks: of an if or a loop.
    """

    run: Callable[[nn.Module, list[Any], tuple[Callable[..., list[Any]], ...]], Iterable[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    blocks: tuple[_Block, ...] = ()


@dataclass(frozen=True)
class _Block:
    """Steps with the names of their inputs and outputs."""

    steps: tuple[_Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __call__(self, module: nn.Module, values: dict[str, Any], arguments: Iterable[Any]) -> Any:
        """Run the steps; they read the values of the blocks around this one, and add theirs."""
        values.update(zip(self.inputs, arguments, strict=True))
        for step in self.steps:
            inner = tuple(
                lambda *given, block=block: block(module, values, given) for block in step.blocks
            )
            results = step.run(module, [values[name] for name in step.inputs], inner)
            values.update(zip(step.outputs, results, strict=True))
        return [values[name] for name in self.outputs]


class _Scripted(nn.Module):
    """What a ``ScriptModule`` does, by steps. Subclasses have its name and signature."""

    _body: _Block

    def __init__(self, weights: nn.Module) -> None:
        super().__init__()
        self.__dict__.update(vars(weights))  # parameters, buffers, submodules and attributes

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        (result,) = self._body(self, {}, bound.arguments.values())
        return result


def _plain_class(script: torch.jit.ScriptModule, body: _Block) -> type[_Scripted]:
    """A class with the name of the script's, whose ``forward`` has its signature."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind)]
    method: Any = script.forward
    for one in method.schema.arguments[1:]:
        default = one.default_value if one.has_default_value() else inspect.Parameter.empty
        parameters.append(inspect.Parameter(one.name, kind, default=default))

    def forward(self: _Scripted, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    signature = inspect.Signature(parameters)
    forward.__signature__ = signature  # type: ignore[attr-defined]  # inspect reads it
    return type(script.original_name, (_Scripted,), {"forward": forward, "_body": body})


class _Reader:
    """Reads graphs into steps, and gathers the weights and attributes that they use."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        self.script = script
        self.root = _copy_weights(script)
        self.unknown: set[str] = set()
        self.paths: dict[str, str] = {}  # of the modules among the values
        self.constants = 0

    def read(self, graph: Any) -> tuple[_Step, ...]:
        """The steps of a graph whose first input is the module itself, or of a block."""
        if not self.paths:
            self.paths[next(iter(graph.inputs())).debugName()] = ""
        return tuple(step for node in graph.nodes() for step in self._read_node(node))

    def _read_node(self, node: Any) -> Iterator[_Step]:
        kind = node.kind()
        names, outputs = _names(node.inputs()), _names(node.outputs())
        if kind == "prim::Constant":
            yield _Step(self._constant(node.output().toIValue()), (), outputs)
        elif kind in ("prim::GetAttr", "prim::SetAttr"):
            yield from self._attribute(node, names, outputs)
        elif kind in ("prim::If", "prim::Loop"):
            blocks = tuple(
                _Block(self.read(block), _names(block.inputs()), _names(block.outputs()))
                for block in node.blocks()
            )
            yield _Step(_branch if kind == "prim::If" else _loop, names, outputs, blocks)
        else:
            run = _function_of(node)
            if run is None or set(names) & self.paths.keys():
                self.unknown.add(kind)
            else:
                yield _Step(run, names, outputs)

    def _constant(self, value: Any) -> Callable[..., Any]:
        if not isinstance(value, torch.Tensor):
            return lambda *_: (value,)
        name = f"constant_{self.constants}"
        self.constants += 1
        self.root.register_buffer(name, value, persistent=False)
        return lambda module, *_: (getattr(module, name),)

    def _attribute(
        self, node: Any, names: tuple[str, ...], outputs: tuple[str, ...]
    ) -> Iterator[_Step]:
        name, path = node.s("name"), self.paths.get(names[0])
        if path is None:
            self.unknown.add(f"{node.kind()} of an object")
            return
        if node.kind() == "prim::SetAttr":
            yield _Step(_set(path, name), (names[1],), outputs)
            return
        value = getattr(_at(self.script, path), name)
        if isinstance(value, torch.jit.ScriptModule):
            self.paths[outputs[0]] = f"{path}.{name}".strip(".")
            return
        owner = _at(self.root, path)
        if name not in {*vars(owner), *dict(_tensors(owner))}:
            setattr(owner, name, value)
        yield _Step(lambda module, *_: (getattr(_at(module, path), name),), (), outputs)


def _names(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(value.debugName() for value in values)


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


def _at(module: nn.Module, path: str) -> nn.Module:
    """A submodule; without `get_submodule`, names may be any that TorchScript makes."""
    for part in path.split(".") if path else ():
        module = getattr(module, part)
    return module


def _set(path: str, name: str) -> Callable[..., Any]:
    def run(module: nn.Module, values: list[Any], _: Any) -> tuple[()]:
        setattr(_at(module, path), name, values[0])
        return ()

    return run


def _copy_weights(script: nn.Module) -> nn.Module:
    """A plain module with the submodules, parameters and buffers of a script, sharing memory."""
    plain = nn.Module()
    for name, parameter in script.named_parameters(recurse=False):
        plain.register_parameter(name, nn.Parameter(parameter.detach(), parameter.requires_grad))
    for name, buffer in script.named_buffers(recurse=False):
        plain.register_buffer(name, buffer)
    for name, child in script.named_children():
        plain.add_module(name, _copy_weights(child))
    return plain


def _function_of(node: Any) -> Callable[..., Any] | None:
    """What runs a node without blocks; ``None`` if nothing is known that does."""
    kind, count = node.kind(), node.outputsSize()
    function, overload = FUNCTIONS.get(kind), None
    matched = re.match(r"(\w+)::(\w+)(?:\.(\w+))?\(", node.schema())
    if matched is not None and matched[1] != "prim":  # those have no traceable operators
        space, name, variant = matched.groups()
        packet = getattr(getattr(torch.ops, space), name, None)
        overload = getattr(packet, variant or "default", None)
    if function is None and overload is None:
        return None
    several = count != 1 or kind in UNPACKING

    def run(_: nn.Module, values: list[Any], __: Any) -> Any:
        result = call_operator(kind, overload, values, function)
        return (() if count == 0 else result) if several else (result,)

    return run


def _branch(_: nn.Module, values: list[Any], blocks: Any) -> Any:
    return blocks[0 if values[0] else 1]()


def _loop(_: nn.Module, values: list[Any], blocks: Any) -> Any:
    most, proceed, *carried = values
    count = 0
    while proceed and count < most:
        proceed, *carried = blocks[0](count, *carried)
        count += 1
    return carried
