"""Compare the exported model with the PyTorch model a layer at a time, each kind of layer once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer import accept_aliases
from torchferry.capturer.trial.trial import Trial
from torchferry.comparer.layers.by_layers import ByLayers, Held
from torchferry.errors import RunError, UsageError
from torchferry.exporter.memory import can_run, weight_bytes
from torchferry.exporter.verify.sizes import Sizes
from torchferry.exporter.verify.verify import (
    Check,
    Compared,
    Sides,
    changed_arguments,
    try_running,
)
from torchferry.graph.reference import Region
from torchferry.judge import Reference, Tolerance, Verdict, worst_verdict
from torchferry.observer.observation import Call
from torchferry.report.model import Section, Table
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["LayerSession", "LayerSides"]


_SHARE = 16  # of the weights, that outputs may take which are only tried
_LEAST, _MOST = 2**26, 2**28  # bytes that they may take in any case, and at most


class LayerSession:
    """A saved model that is run by layers; takes and returns what the PyTorch model does.

    Attributes:
        path: the model's file.
        signature: how its tensors stand in arguments and outputs.
        by_layers: its pieces.
        whole: the sizes at which it was run from end to end; ``None`` before.
    """

    def __init__(
        self, path: Path, program: ExportedProgram, regions: Sequence[Region] = ()
    ) -> None:
        """Cut the model; see `ByLayers`."""
        self.path = path
        self.whole: Sizes | None = None
        self.by_layers = ByLayers(path, program, regions=regions)
        text = self.by_layers.model.metadata_props[SIGNATURE_KEY]
        self.signature = replace(Signature.from_json(text), conditions=())

    def unload(self) -> None:
        """Nothing stays loaded."""

    def alone(self) -> LayerSession:
        """Itself: a copy of this process loads every piece for itself."""
        return self

    def by(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method."""
        return getattr(self, method)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run all pieces, each on what the one before it computed.

        Raises:
            RunError: onnxruntime fails.
            UsageError: the arguments do not fit.
        """
        return self.signature.nest(self.by_layers.outputs((args, kwargs)))

    def held(self, inputs: Any, tolerance: Tolerance, every: bool) -> list[Held]:
        """What comes of each piece on PyTorch's values: see `ByLayers.run`."""
        return [*self.by_layers.run(inputs, tolerance, every=every)]

    def __str__(self) -> str:
        like = self.by_layers.skipped
        layers = len({piece.layer for piece in self.by_layers.pieces} - {""})
        ran = "from end to end once" if self.whole else "never from end to end"
        said = f"by layers, {layers - len(like)} of {layers} run, {ran}"
        more = "; the others have the same graph and their own weights, byte for byte"
        return said + more * bool(like)

    @property
    def section(self) -> Section:
        """What was run, and what follows from it."""
        like, rows = self.by_layers.skipped, []
        for piece in (piece for piece in self.by_layers.pieces if not piece.like):
            same = [other for other, one in like.items() if one == piece.layer and one]
            follow = f"{same[0]} … {same[-1]} ({len(same)})" if len(same) > 2 else ", ".join(same)
            told = f"run; {piece.wrong} is not the model's" if piece.wrong else "run"
            rows.append((piece.layer or "around the layers", len(piece.nodes), told, follow))
        sizes = ", ".join(f"{name}={size}" for name, size in (self.whole or {}).items())
        ran = f"at {sizes}" if self.whole else "no, its weights take over half of the free memory"
        note = (
            "run: given PyTorch's values, at each set of sizes. A layer follows from another if "
            "program and ONNX model have the same nodes for both, its weights in the file are the "
            f"model's, byte for byte, and it reads and makes what corresponds. In a row: {ran}."
        )
        head = ("piece", "nodes", "how", "follow from it")
        return Section("Layers", (Table(head, tuple(rows), note=note),))

    @property
    def data(self) -> dict[str, Any]:
        """The same for programs."""
        run = [piece.layer for piece in self.by_layers.pieces if not piece.like]
        return {"run": run, "like": self.by_layers.skipped, "whole": self.whole}


class LayerSides(Sides):
    """PyTorch and the exported model, both a layer at a time.

    The module runs, and its program, both with the weights of one layer in all that are like it:
    all their code, and few weights. What they return is compared as in a whole verification. Then
    each piece of the ONNX model is given the program's values. The smallest recorded call also
    runs whole and with all weights, if these fit in memory.
    """

    @cached_property
    def whole(self) -> Sizes | None:
        """The sizes of the recorded call that runs from end to end, if any does."""
        if not can_run(weight_bytes(self.model)):
            return None
        calls = [self.seen.sizes_of(call) for call in self.seen.calls]
        return min(calls, key=lambda sizes: math.prod(sizes.values()))

    def check(self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool) -> Check:
        """By layers; see the class."""
        check = self._by_layers(inputs, sizes, made=made, every=False)
        if check.failed or check.refused is not None:
            # What a model does with the results of layers may hang on those that are left out.
            check = self._by_layers(inputs, sizes, made=made, every=True)
        if check.ok and not made and sizes == self.whole:
            self.session.whole = sizes
            whole = super().check(inputs, sizes, made=made)
            if not whole.ok:
                return replace(whole, blame="each layer alone is right, but not all in a row")
        others = check.ok and any(condition.broken_by(sizes) for condition in self.conditions)
        return self.with_other_values(check, inputs) if others else check

    @cached_property
    def trial(self) -> Trial | None:
        """The model beside its program, both with few weights."""
        if self.program is None:
            return None
        return _LayerTrial(self, self.program)

    def _by_layers(
        self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool, every: bool
    ) -> Check:
        shared = {} if every else self.pieces.shared
        changed: list[tuple[str, ...]] = []

        def call(model: torch.nn.Module, given: tuple[Any, Any]) -> list[Any]:
            outputs = self.run_model(model, given, shared)
            if not changed:
                changed.append(changed_arguments(inputs, given, outputs))
            return self.leaves(outputs)

        reference = Reference(call, self.model, inputs, tolerance=self.tolerance)
        _, refused = try_running(lambda: reference.expected)
        if refused is not None:
            return Check(sizes, made, refused=refused)
        try:
            held: list[Held] = self.session.by("held", inputs, self.tolerance, every)
        except (RunError, UsageError) as error:
            return Check(sizes, made, error=str(error).splitlines()[0][:300])
        at = {one.name: one for one in held}
        values = {str(self.pieces.key(name)): one.expected for name, one in at.items()}
        captured = [verdict for _, verdict in reference.judge(self.values(values))]
        if len(captured) != len(self._leaves):
            return Check(sizes, made, (Compared("structure", worst_verdict(captured)),))
        outputs = []
        for name, verdict in zip(self._names, captured, strict=True):
            if name:
                outputs.append(Compared(name, _worse(verdict, at[name].verdict or verdict)))
            elif verdict.difference.abs or not verdict.ok:
                outputs.append(Compared("a constant", verdict))
        inner = [
            Compared(f"{one.name} in {one.layer or 'what lies around the layers'}", one.verdict)
            for one in held
            if one.verdict and not one.verdict.ok and one.name not in self._names
        ]
        blame = self._blamed(held) or (
            "the captured program is wrong there already, so torch.export is at fault"
            if any(verdict.kind == "differs" for verdict in captured)
            else None
        )
        return Check(sizes, made, (*outputs, *inner), blame=blame, changed=changed[0])

    def _blamed(self, held: Sequence[Held]) -> str | None:
        """The first layer that is wrong though it was given right values, and its weight."""
        bad = (one for one in held if one.verdict and one.verdict.kind in ("differs", "failed"))
        first = next(bad, None)
        if first is None:
            return None
        wrong = next((p.wrong for p in self.pieces.pieces if p.layer == first.layer), "")
        where = first.layer or "what lies around the layers"
        weight = f"; its weight {wrong} is not the model's" if wrong else ""
        return f"{where} makes {first.name} wrong, given PyTorch's values{weight}"

    @property
    def pieces(self) -> ByLayers:
        """Of the exported model."""
        session = getattr(self.session, "session", self.session)  # in a copy of the process
        found: ByLayers = getattr(session, "loaded", session).by_layers
        return found

    @cached_property
    def _names(self) -> list[str]:
        """The output of the ONNX model for each leaf of the outputs; ``""`` of a constant."""
        return [leaf[0] if isinstance(leaf, list) else "" for leaf in self._leaves]

    def run_model(
        self, model: torch.nn.Module, inputs: Any, weights: Mapping[str, torch.Tensor]
    ) -> Any:
        """Call the module, some weights in the place of others."""
        args, kwargs = inputs
        kwargs = accept_aliases(self.model, kwargs)
        # Under a mode Dynamo would trace what PyTorch compiles on its own, as torch.cond.
        with torch.compiler.set_stance("force_eager"), self.pieces.mode:
            return torch.func.functional_call(model, dict(weights), args, kwargs)

    def leaves(self, outputs: Any) -> list[Any]:
        """The leaves of what PyTorch returns; with their number where the model has others."""
        leaves = [leaf for _, leaf in self.flat(outputs)]
        return leaves if len(leaves) == len(self._leaves) else [len(leaves), *leaves]

    def values(self, values: Mapping[str, Any]) -> list[Any]:
        """The same of what the program returns, by its names; constants are themselves."""
        found = []
        for leaf in self._leaves:
            value = values[str(self.pieces.key(leaf[0]))] if isinstance(leaf, list) else leaf
            is_number = isinstance(leaf, list) and leaf[0] in self.session.signature.numbers
            found.append(value.item() if is_number else value)
        return found


class _LayerTrial(Trial):
    """A model beside its program, both with hardly any weights."""

    def __init__(self, sides: LayerSides, program: ExportedProgram) -> None:
        super().__init__(
            sides.model, sides.seen, program, sides.conditions, joined=sides.joined,
            decided=sides.decided,
        )  # fmt: skip
        self._sides = sides

    def run_program(self, inputs: Any) -> Any:
        pieces = self._sides.pieces
        return self._sides.values(pieces.returned(inputs, pieces.bare))

    def of(self, inputs: Any, sizes: dict[str, int]) -> Verdict:
        """As the base class has it; nothing is known of calls that are too large to be tried."""
        if self._returns_too_much(inputs):
            return Verdict("failed", evidence="outputs are too large to try other values")
        return super().of(inputs, sizes)

    def _returns_too_much(self, inputs: Any) -> bool:
        most = min(max(_LEAST, weight_bytes(self.model) // _SHARE), _MOST)
        sizes = self.seen.sizes_of(Call(inputs[0], inputs[1], None))
        return self._sides.pieces.bytes_returned(sizes) > most

    def call(self, inputs: Any) -> Call | None:
        """As the base class has it; ``None`` too if the outputs took too much memory."""
        if self._returns_too_much(inputs):
            return None

        def run() -> Any:
            with random_kept(), buffers_kept(self.model), torch.no_grad():
                bare = self._sides.pieces.bare
                return self._sides.run_model(self.model, clone(inputs), bare)

        outputs, error = attempt(run)
        return None if error else Call(inputs[0], inputs[1], outputs)

    # Of layers, recorded and made inputs are judged alike.
    def judged(self, call: Call, **_: bool) -> Verdict:
        sides = self._sides

        def again(model: torch.nn.Module, given: tuple[Any, Any]) -> list[Any]:
            return sides.leaves(sides.run_model(model, given, sides.pieces.bare))

        inputs = self.seen.normalized(call)
        got, error = attempt(self.run_program, inputs)
        if error is not None:
            return Verdict("failed", evidence=f"the program does not run: {error}"[:200])
        reference = Reference(again, self.model, inputs, expected=sides.leaves(call.outputs))
        return worst_verdict(verdict for _, verdict in reference.judge(got))


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """The worse of two verdicts; of two that are equal, that with the larger difference."""
    if one.kind == other.kind:
        return max(one, other, key=lambda verdict: verdict.difference.abs)
    return worst_verdict([one, other])
