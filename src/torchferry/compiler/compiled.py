"""A functional graph that runs on onnxruntime where it can, and in PyTorch where it cannot."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.compiler.graph import Translated, source, translate
from torchferry.compiler.partition import Refused, obstacles, partition, tell
from torchferry.compiler.program import Program
from torchferry.compiler.record import Settings, record
from torchferry.compiler.session import TensorSession, providers_for
from torchferry.compiler.weights import FrozenWeights, can_freeze
from torchferry.errors import ConversionError, FerryError, RunError
from torchferry.optimizer import widen
from torchferry.runner import nodes_without_kernel
from torchferry.seams.pytorch import mark_boxed

__all__ = ["CompiledGraph", "Keep"]

_log = logging.getLogger("torchferry")

_CHANGES = 3  # how often a session is made anew for weights that changed
_SETS = 64  # how many sets of weights get a session each: layers that share one graph
_REFUSALS = 16  # how many operators are taken out one by one, each for a new translation
# What a converter, a rewrite or a torch operator may raise on a graph it cannot deal with.
_FAILURES = (FerryError, RuntimeError, ValueError, TypeError, LookupError, AttributeError,
             AssertionError)  # fmt: skip
_SCOPES = "pkg.torch.onnx.name_scopes"

Keep = Callable[[Translated, TensorSession, FrozenWeights], None]


class CompiledGraph:
    """A functional ATen graph, to be called with a list of its arguments.

    The session is made at the first call, when the weights are known. When it cannot be made, the
    operators that are to blame run in PyTorch, and what stands between them on onnxruntime.

    Attributes:
        keep: is called with every session that runs the whole graph, if it is set.
    """

    def __init__(self, module: fx.GraphModule, frozen: Sequence[int], settings: Settings) -> None:
        """Prepare a graph.

        Args:
            module: of ATen operators, nothing written in place, ``meta["val"]`` known.
            frozen: positions of the arguments that may become weights of the session.
            settings: what the user asked for.
        """
        self._module = module
        self._frozen = tuple(frozen)
        self._settings = settings
        self._programs: list[Program] = []
        self._last: Program | None = None
        self._changes = 0
        self._told = False
        self.keep: Keep | None = None
        self._instead: Callable[[Sequence[Any]], Any] | None = None
        refused = obstacles(module)
        if refused:
            self._split(refused)
        elif all(
            source(node).op == "placeholder" for node in module.graph.output_node().all_input_nodes
        ):
            self._instead = lambda args: module(*args)  # there is nothing to compute

    def __call__(self, args: Sequence[Any]) -> Any:
        """The results of the graph, as a list or tuple."""
        if self._instead is not None:
            return self._instead(args)
        program = self._last
        if program is None or not program.weights.unchanged(args):
            program = self._fitting(args)
            if program is None:
                return self(args)
        try:
            return program(args)
        except RunError as error:
            if not self._told:
                self._told = True
                _log.warning("a graph runs in eager for some inputs: %s", error)
            return self._module(*args)

    @property
    def boxed(self) -> Callable[[list[Any]], Any]:
        """The graph as AOTAutograd takes it: a function of one list that says so."""

        def call(args: list[Any]) -> Any:
            return self(args)

        mark_boxed(call)
        return call

    @property
    def unboxed(self) -> Callable[..., Any]:
        """The graph as dynamo calls it, with the arguments one by one."""

        def call(*args: Any) -> Any:
            return self(args)

        return call

    # Sessions ----------------------------------------------------------------------------------

    def _fitting(self, args: Sequence[Any]) -> Program | None:
        """The program for these weights; ``None`` when the graph is run otherwise from now on."""
        self._last = next((p for p in self._programs if p.weights.unchanged(args)), None)
        if self._last is not None:
            return self._last
        stale = [p for p in self._programs if p.weights.owned(args)]
        self._programs = [p for p in self._programs if p not in stale]
        self._changes += len(stale)
        if self._frozen and (self._changes > _CHANGES or len(self._programs) >= _SETS):
            _log.info("weights change often: they are inputs of the session from now on")
            self._frozen, self._programs = (), []
        frozen = [place for place in self._frozen if can_freeze(args[place])]
        translated = None
        try:
            weights = FrozenWeights(frozen, args)
            translated = self._translated(weights)
            self._last = self._loaded(translated, weights, args)
        except _FAILURES as error:
            self._give_way(error, translated)
            return None
        self._programs.append(self._last)
        return self._last

    def _translated(self, weights: FrozenWeights) -> Translated:
        settings = self._settings
        translated = translate(self._module, settings.opset, weights.tensors)
        if settings.options is None:
            return translated
        model = settings.options.apply(translated.model)
        return Translated(model, translated.feeds, translated.results)

    def _loaded(
        self, translated: Translated, weights: FrozenWeights, args: Sequence[Any]
    ) -> Program:
        settings, model = self._settings, translated.model
        if any(v.dtype == ir.DataType.BFLOAT16 for n in model.graph for v in n.outputs):
            widen(nodes_without_kernel(model, ir.DataType.BFLOAT16))
        devices = {arg.device for arg in args if isinstance(arg, torch.Tensor)}
        device = max(devices, key=lambda d: d.type != "cpu", default=torch.device("cpu"))
        providers = providers_for(device, settings.providers)
        session = TensorSession(model, providers, device, options=settings.session_options)
        level = logging.INFO if settings.verbose else logging.DEBUG
        _log.log(level, "a graph of %d nodes became %d", len(self._module.graph.nodes),
                 len(model.graph))  # fmt: skip
        instance = record(settings, self._module, translated, session)
        if self.keep is not None:
            self.keep(translated, session, weights)
        kept = instance if settings.keep_values else None
        return Program(translated.feeds, translated.results, session, weights, kept)

    # Where onnxruntime cannot ------------------------------------------------------------------

    def _give_way(self, error: Exception, translated: Translated | None) -> None:
        """Take the operator that is to blame out of the graph, or run all of it in eager."""
        name = error.node if isinstance(error, (ConversionError, RunError)) else None
        if isinstance(error, RunError) and translated is not None:
            name = _origin(translated.model, name)
        node = next((n for n in self._module.graph.nodes if n.name == name), None)
        refusals = self._module.meta.get("refusals", 0)
        if node is None or node.op != "call_function" or refusals >= _REFUSALS:
            _log.warning("a graph runs in eager: %s", error)
            self._instead = lambda args: self._module(*args)
            return
        self._module.meta["refusals"] = refusals + 1
        self._split({node: str(error).splitlines()[0]})

    def _split(self, refused: Refused) -> None:
        tell(refused)
        refusals = self._module.meta.get("refusals", 0)
        whole = partition(self._module, refused)
        for node in whole.graph.find_nodes(op="call_module"):
            part: Any = whole.get_submodule(str(node.target))
            part.meta["refusals"] = refusals
            frozen = _frozen_arguments(node, self._frozen)
            whole.set_submodule(
                str(node.target), _Part(CompiledGraph(part, frozen, self._settings))
            )
        self._instead = lambda args: whole(*args)


class _Part(torch.nn.Module):
    """A compiled piece of a graph, called by the code of the whole."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__()
        self._compiled = compiled
        output = compiled._module.graph.output_node().args[0]
        self._single = isinstance(output, fx.Node)

    def forward(self, *args: Any) -> Any:
        results = self._compiled(list(args))
        return results[0] if self._single and isinstance(results, list) else results


def _frozen_arguments(call: fx.Node, frozen: Sequence[int]) -> list[int]:
    places = {node: i for i, node in enumerate(call.graph.find_nodes(op="placeholder"))}
    return [i for i, arg in enumerate(call.args) if places.get(arg) in frozen]


def _origin(model: ir.Model, name: str | None) -> str | None:
    """The FX node that an ONNX node came from."""
    for node in model.graph.all_nodes():
        if name and node.name == name and (said := node.metadata_props.get(_SCOPES)):
            return str(ast.literal_eval(said)[-1])
    return None
