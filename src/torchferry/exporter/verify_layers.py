"""Compare the exported model with the PyTorch model a layer at a time, each kind of layer once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer import accept_aliases
from torchferry.capturer.trial import Trial
from torchferry.comparer.by_layers import ByLayers, Held
from torchferry.comparer.trace import stand_in
from torchferry.errors import RunError, UsageError
from torchferry.exporter.memory import can_run, weight_bytes
from torchferry.exporter.sizes import Sizes
from torchferry.exporter.verify import Check, Compared, Sides, changed_arguments, try_running
from torchferry.graph.reference import Region
from torchferry.judge import Reference, Tolerance, Verdict, worst_verdict
from torchferry.observer.observation import Call
from torchferry.report.model import Section, Table
from torchferry.values.clone import clone
from torchferry.values.flatten import map_leaves
from torchferry.values.kinds import attempt
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["LayerSession", "LayerSides", "skipped"]


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

    The module runs with the layers left out that are like others, and so does its program: what
    both return is compared, as in a whole verification. Then each piece of the ONNX model is given
    the program's values. The smallest recorded call also runs whole, if the weights fit in memory.
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
        """The model beside its program, both without the layers that are like others."""
        if self.program is None:
            return None
        return _LayerTrial(self, self.program)

    def _by_layers(
        self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool, every: bool
    ) -> Check:
        left_out = {} if every else self.pieces.skipped
        changed: list[tuple[str, ...]] = []

        def call(model: torch.nn.Module, given: tuple[Any, Any]) -> list[Any]:
            args, kwargs = given
            with skipped(model, left_out):
                outputs = model(*args, **accept_aliases(self.model, kwargs))
            if not changed:
                changed.append(changed_arguments(inputs, given, outputs))
            return self.kept(outputs, every=every)

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
        got = self.kept_values(values, every=every)
        captured = [verdict for _, verdict in reference.judge(got)]
        outputs = []
        keeps = self._keeps(every)
        for name, verdict in zip(compress(self._names, keeps), captured, strict=True):
            if name:
                outputs.append(Compared(name, _worse(verdict, at[name].verdict)))
            elif verdict.difference.abs or not verdict.ok:
                outputs.append(Compared("a constant", verdict))
        inner = [
            Compared(f"{one.name} in {one.layer or 'what lies around the layers'}", one.verdict)
            for one in held
            if one.name not in self._names and not one.verdict.ok
        ]
        blame = self._blamed(held) or (
            "the captured program is wrong there already, so torch.export is at fault"
            if any(verdict.kind == "differs" for verdict in captured)
            else None
        )
        return Check(sizes, made, (*outputs, *inner), blame=blame, changed=changed[0])

    def _blamed(self, held: Sequence[Held]) -> str | None:
        """The first layer that is wrong though it was given right values, and its weight."""
        first = next((one for one in held if one.verdict.kind in ("differs", "failed")), None)
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

    def _keeps(self, every: bool) -> list[bool]:
        """Which leaves of the outputs are made by what is run."""
        derived = frozenset[str]() if every else self.pieces.derived
        return [not name or self.pieces.key(name) not in derived for name in self._names]

    def kept(self, outputs: Any, *, every: bool = False) -> list[Any]:
        """The leaves of what PyTorch returns that layers make which are run.

        Raises:
            UsageError: there are more or fewer leaves than the exported model has.
        """
        leaves = self.flat(outputs)
        if len(leaves) != len(self._leaves):
            raise UsageError(f"it returns {len(leaves)} values, not {len(self._leaves)}")
        return [leaf for _, leaf in compress(leaves, self._keeps(every))]

    def kept_values(self, values: Mapping[str, Any], *, every: bool = False) -> list[Any]:
        """The same of what the program returns, by its names; constants are themselves."""
        found = []
        for leaf in compress(self._leaves, self._keeps(every)):
            value = values[str(self.pieces.key(leaf[0]))] if isinstance(leaf, list) else leaf
            is_number = isinstance(leaf, list) and leaf[0] in self.session.signature.numbers
            found.append(value.item() if is_number else value)
        return found


class _LayerTrial(Trial):
    """A model beside its program, both without the layers that are like others."""

    def __init__(self, sides: LayerSides, program: ExportedProgram) -> None:
        super().__init__(
            sides.model, sides.seen, program, sides.conditions, joined=sides.joined,
            decided=sides.decided,
        )  # fmt: skip
        self._sides = sides

    def run_program(self, inputs: Any) -> Any:
        return self._sides.kept_values(self._sides.pieces.returned(inputs))

    def call(self, inputs: Any) -> Call | None:
        def run() -> Call | None:
            with skipped(self.model, self._sides.pieces.skipped):
                return super(_LayerTrial, self).call(inputs)

        found: Call | None = attempt(run)[0]
        return found  # of a call that fails early, no layer is called

    def judged(self, call: Call) -> Verdict:
        inputs = self.seen.normalized(call)

        def again(model: torch.nn.Module, given: tuple[Any, Any]) -> list[Any]:
            with skipped(model, self._sides.pieces.skipped):
                outputs = model(*given[0], **accept_aliases(self.model, given[1]))
            return self._sides.kept(outputs)

        got, error = attempt(self.run_program, inputs)
        if error is not None:
            return Verdict("failed", evidence=f"the program does not run: {error}"[:200])
        expected = self._sides.kept(call.outputs)
        reference = Reference(again, self.model, inputs, expected=expected)
        return worst_verdict(verdict for _, verdict in reference.judge(got))


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """The worse of two verdicts; of two that are equal, that with the larger difference."""
    if one.kind == other.kind:
        return max(one, other, key=lambda verdict: verdict.difference.abs)
    return worst_verdict([one, other])


@contextmanager
def skipped(model: torch.nn.Module, like: Mapping[str, str]) -> Iterator[None]:
    """Leave layers out of what a model runs; values like another layer's stand for theirs.

    Args:
        model: any module.
        like: paths of layers to leave out → of the layer that each is like, in the model's order.

    Raises:
        UsageError: at the end of the block, if one of them was not called as a module.
    """
    modules = dict(model.named_modules())
    numbers = {path: number for number, path in enumerate(like, 1)}
    results: dict[str, Any] = {}
    called: set[str] = set()

    def remember(path: str, forward: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            results[path] = forward(*args, **kwargs)
            return results[path]

        return run

    def repeat(path: str) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            called.add(path)
            change = partial(stand_in, number=numbers[path])
            return map_leaves(change, clone(results[like[path]]))

        return run

    chosen = [path for path in {*like, *like.values()} if path in modules]
    with ExitStack() as stack:
        for path in chosen:
            own = repeat(path) if path in like else remember(path, modules[path].forward)
            kept = modules[path].__dict__
            before = {"forward": kept["forward"]} if "forward" in kept else {}
            stack.callback(kept.update, before)
            stack.callback(kept.pop, "forward", None)
            kept["forward"] = own
        yield
    if missed := sorted(like.keys() - called):
        raise UsageError(f"{missed[0]} is not called as a module")
