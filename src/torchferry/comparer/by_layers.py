"""An ONNX model beside its program, a layer at a time: memory for one, and each kind run once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import ExportedProgram

from torchferry.comparer.align import align_program
from torchferry.comparer.alike import Piece, find_pieces
from torchferry.comparer.chance import chance_of_program
from torchferry.comparer.feeds import model_feeds, program_feeds
from torchferry.comparer.part import part_of
from torchferry.comparer.piece import Runner, cut, ort_value, outside, tensor_of_ort
from torchferry.comparer.reference import Reference, returned_names
from torchferry.comparer.setting import Setting, with_own_outputs
from torchferry.comparer.trace import Twin, trace_program
from torchferry.converter.signature import read_signature
from torchferry.converter.translate import prepared
from torchferry.errors import RunError, UsageError
from torchferry.graph import io
from torchferry.graph.reference import Region
from torchferry.judge import Reference as Judged
from torchferry.judge import Tolerance, Verdict
from torchferry.judge.value import difference_of
from torchferry.observer.tree import program_inputs
from torchferry.values.dtype import element_type

__all__ = ["ByLayers", "Held"]

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Held:
    """One value that leaves a piece.

    Attributes:
        name: in the ONNX model.
        layer: that makes it; ``""`` around the layers.
        verdict: on the piece that makes it, given the program's values.
        expected: what the program has there.
    """

    name: str
    layer: str
    verdict: Verdict
    expected: torch.Tensor


class ByLayers:
    """A saved model, cut into layers, and the program it was made of.

    Attributes:
        model: its weights stay in their files.
        pieces: in order; one that is like another need not be run.
    """

    def __init__(
        self,
        path: Path,
        program: ExportedProgram,
        *,
        regions: Sequence[Region] = (),
        level: str = "all",
    ) -> None:
        """Read the model and look for layers that are the same.

        Args:
            path: the ``.onnx`` file.
            program: what it was converted from; its weights may be mapped.
            regions: files in which these lie.
            level: of onnxruntime's optimizations.

        Raises:
            UsageError: the file cannot be read, or the program draws random numbers.
        """
        self.model = with_own_outputs(io.load(path))
        self._program, self._plain = program, prepared(program)
        chance = chance_of_program(self._plain)
        if chance.drawn or chance.unset:
            raise UsageError(
                "a model that draws random numbers cannot be verified by layers: verify it whole"
            )
        graph = self.model.graph
        files = {
            Path(value.const_value.path)
            for value in graph.initializers.values()
            if isinstance(value.const_value, ir.ExternalTensor)
        }
        beside = [path.with_name(file.name) for file in sorted(files)]
        self._runner = Runner(level, beside=beside)
        names = returned_names(read_signature(program))
        origins = align_program(self._plain, graph, names)
        reference = Reference(lambda _: iter(()), origins, program=program, plain=self._plain)
        setting = Setting(self.model, {}, reference, self._runner)
        self.pieces = find_pieces(setting, regions)
        self._keys = {name: o.key for name, o in origins.items() if ":" not in o.key}
        for value in graph.outputs:
            if value.name not in self._keys:
                raise UsageError(
                    f"nothing is known of the output {value.name}, so this model cannot be "
                    "verified by layers: verify it whole"
                )

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Paths of the layers that are not run → that of the layer that each is like."""
        return {piece.layer: piece.like for piece in self.pieces if piece.like}

    def key(self, name: str) -> str | None:
        """The program's name of a value of the ONNX model; ``None`` if nothing is known of it."""
        return self._keys.get(name)

    @cached_property
    def derived(self) -> set[str]:
        """Values of the program that layers make which are not run."""
        return {*self._twins}

    def returned(self, call: Call) -> dict[str, torch.Tensor]:
        """What the program returns without the layers that are like others, by its names.

        Raises:
            UsageError: the program fails on these arguments.
        """
        wanted = {self._keys[str(value.name)] for value in self.model.graph.outputs}
        stream = trace_program(self._plain, program_feeds(self._program, *call), self._twins)
        return {key: tensor for key, tensor in stream if key in wanted}

    @cached_property
    def _twins(self) -> dict[str, Twin]:
        skipped = [piece for piece in self.pieces if piece.like]
        return {
            name: Twin(other, number)
            for number, piece in enumerate(skipped, 1)
            for name, other in piece.twins.items()
        }

    def run(self, call: Call, tolerance: Tolerance, *, every: bool = False) -> Iterator[Held]:
        """Give each piece the program's values, and judge what it makes of them.

        Args:
            call: arguments, as the program nests them.
            tolerance: what passes, if the user sets it or for the model's dtype.
            every: run the layers too that are like others, with their own weights.

        Raises:
            UsageError: the program fails on these arguments.
        """
        feeds = model_feeds(self.model, *call, read_signature(self._program).parameters)
        given = {name: ort_value(tensor) for name, tensor in feeds.items()}
        twins = {} if every else self._twins
        stream = trace_program(self._plain, program_feeds(self._program, *call), twins)
        wanted = {self._keys[str(v.name)] for p in self.pieces for v in p.leaving
                  if str(v.name) in self._keys}  # fmt: skip
        right: dict[str, torch.Tensor] = {}
        for piece in self.pieces:
            _advance(stream, right, wanted, [self._keys.get(str(v.name)) for v in piece.leaving])
            if piece.like and not every:
                self._hand_on(piece, right, given)
            else:
                yield from self._judged(piece, right, given, tolerance)
            self._forget(piece, given)

    def outputs(self, call: Call) -> dict[str, torch.Tensor | None]:
        """What the ONNX model returns, by name: every layer is run, on what was computed before.

        Raises:
            RunError: onnxruntime fails.
        """
        feeds = model_feeds(self.model, *call, read_signature(self._program).parameters)
        given = {name: ort_value(tensor) for name, tensor in feeds.items()}
        found: dict[str, torch.Tensor | None] = {}
        for piece in self.pieces:
            given |= self._computed(piece, given)
            for value in piece.leaving:
                if value.is_graph_output():
                    found[str(value.name)] = tensor_of_ort(given[str(value.name)])
            self._forget(piece, given)
        return found

    def _computed(
        self, piece: Piece, given: Mapping[str, onnxruntime.OrtValue]
    ) -> dict[str, onnxruntime.OrtValue]:
        model = cut(self.model, outside(piece.nodes), piece.leaving, given)
        return self._runner(model, given)

    def _hand_on(
        self,
        piece: Piece,
        right: Mapping[str, torch.Tensor],
        given: dict[str, onnxruntime.OrtValue],
    ) -> None:
        """Let what follows a layer that is not run take the program's values."""
        for value in piece.leaving:
            name = str(value.name)
            given[name] = _as_declared(right[self._keys[name]], value.dtype)

    def _judged(
        self,
        piece: Piece,
        right: Mapping[str, torch.Tensor],
        given: dict[str, onnxruntime.OrtValue],
        tolerance: Tolerance,
    ) -> Iterator[Held]:
        names = [str(value.name) for value in piece.leaving]
        known = {n: right[self._keys[n]] for n in names if self._keys.get(n, "") in right}
        taken = {str(v.name): given[str(v.name)] for v in outside(piece.nodes)}
        try:
            found = self._computed(piece, given)
        except RunError as error:
            for name, expected in known.items():
                said = Verdict("failed", difference_of(expected, None), str(error))
                yield Held(name, piece.layer, said, expected)
            self._hand_on_all(piece, right, given)
            return
        for name, value in found.items():
            if name not in known:
                given[name] = value
                continue
            expected, got = known[name], tensor_of_ort(value)
            verdict = self._verdict(name, expected, got, taken, tolerance)
            yield Held(name, piece.layer, verdict, expected)
            declared = ir.DataType(value.element_type()) if value.is_tensor() else None
            given[name] = _as_declared(expected, declared)

    def _hand_on_all(
        self,
        piece: Piece,
        right: Mapping[str, torch.Tensor],
        given: dict[str, onnxruntime.OrtValue],
    ) -> None:
        """As `_hand_on`, as far as the program has the values.

        Raises:
            RunError: what follows takes others too.
        """
        for value in piece.leaving:
            key = self._keys.get(str(value.name))
            if key not in right and not value.is_graph_output():
                raise RunError(f"nothing is known of {value.name}, which is read after a failure")
            if key in right:
                given[str(value.name)] = _as_declared(right[str(key)], value.dtype)

    def _verdict(
        self,
        name: str,
        expected: torch.Tensor,
        got: torch.Tensor | None,
        taken: Mapping[str, onnxruntime.OrtValue],
        tolerance: Tolerance,
    ) -> Verdict:
        """By the plain tolerance, or by how far rounding carries this piece of the program."""
        inside = name not in {str(value.name) for value in self.model.graph.outputs}
        floats = got is not None and got.is_floating_point() and expected.is_floating_point()
        if got is not None and inside and floats:
            got = got.to(expected.dtype)  # computed in more precision
        difference = difference_of(expected, got)
        limits = tolerance.widened(expected.dtype)
        if difference.reason is None and limits.allows(difference, expected):
            limit = f"{limits.limit(difference.scale):.2g} ({limits.basis or 'as set'})"
            return Verdict("equal", difference, limit=limit)
        part = None
        if difference.reason is None:
            keys = {self._input_keys[n]: n for n in taken if n in self._input_keys}
            part = part_of(self._plain, keys, self._keys[name])
        if part is None:
            return Verdict("differs", difference)
        values = {key: tensor_of_ort(taken[n]) for key, n in keys.items() if key in part.inputs}
        again = Judged(lambda model, given: [model(**given)], part.module, values,
                       tolerance=tolerance, expected=[expected])  # fmt: skip
        ((_, verdict),) = again.judge([got])
        return verdict

    @cached_property
    def _input_keys(self) -> dict[str, str]:
        """The program's names of the inputs of the ONNX model, and of values in it."""
        slots = read_signature(self._program).inputs
        pairs = zip(slots, program_inputs(self._program), strict=True)
        return {slot.name: node.name for slot, (_, node) in pairs} | self._keys

    def _forget(self, piece: Piece, given: dict[str, onnxruntime.OrtValue]) -> None:
        for name in self._last[id(piece)]:
            given.pop(name, None)

    @cached_property
    def _last(self) -> dict[int, list[str]]:
        """What no later piece reads, by piece."""
        last = {str(v.name): id(p) for p in self.pieces for v in [*outside(p.nodes), *p.leaving]}
        found: dict[int, list[str]] = {id(piece): [] for piece in self.pieces}
        for name, piece in last.items():
            found[piece].append(name)
        return found


def _advance(
    stream: Iterator[tuple[str, torch.Tensor]],
    right: dict[str, torch.Tensor],
    wanted: Collection[str],
    keys: Sequence[str | None],
) -> None:
    """Run the program as far as some values; of the others that are wanted, keep what comes."""
    missing = {key for key in keys if key is not None and key not in right}
    while missing:
        pair = next(stream, None)
        if pair is None:
            return
        if pair[0] in wanted:
            right[pair[0]] = pair[1]
        missing.discard(pair[0])


def _as_declared(tensor: torch.Tensor, dtype: ir.DataType | None) -> onnxruntime.OrtValue:
    """A value of the program, in the dtype that the ONNX model has there."""
    value = ort_value(tensor)
    if dtype is None or value.element_type() == int(dtype):
        return value
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
             torch.int32, torch.bool]  # fmt: skip
    kind = next((one for one in kinds if element_type(one) == int(dtype)), tensor.dtype)
    return ort_value(tensor.to(kind))
