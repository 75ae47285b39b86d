"""An ONNX model beside its program, a layer at a time: memory for one, and each kind run once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.export import ExportedProgram

from torchferry.comparer.align.align import align_program
from torchferry.comparer.layers.alike import Piece, find_pieces
from torchferry.comparer.layers.part import part_of
from torchferry.comparer.layers.stand_in import StandIns, product_weights
from torchferry.comparer.reference.chance import chance_of_program
from torchferry.comparer.reference.reference import returned_names
from torchferry.comparer.run.feeds import model_feeds, program_feeds
from torchferry.comparer.run.piece import Runner, cut, ort_value, outside, tensor_of_ort
from torchferry.comparer.run.trace import trace_program
from torchferry.comparer.setting import with_own_outputs
from torchferry.converter.signature import read_signature
from torchferry.converter.translate import prepared
from torchferry.dims import evaluate, names_in, parse_size
from torchferry.errors import RunError, UsageError
from torchferry.graph import io
from torchferry.graph.reference import Region
from torchferry.judge import Reference, Tolerance, Verdict
from torchferry.judge.value import difference_of
from torchferry.observer.tree import program_inputs
from torchferry.values.dtype import torch_dtype

__all__ = ["ByLayers", "Held"]

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Held:
    """One value that leaves a piece.

    Attributes:
        name: in the ONNX model.
        layer: that makes it; ``""`` around the layers.
        verdict: on the piece that makes it, given the program's values; ``None`` if not run.
        expected: what the program has there.
    """

    name: str
    layer: str
    verdict: Verdict | None
    expected: torch.Tensor


class ByLayers:
    """A saved model, cut into layers, and the program it was made of.

    Attributes:
        model: its weights stay in their files.
        pieces: in order; one that is like another need not be run.
        mode: within which a module or program runs with the weights below.
    """

    def __init__(
        self,
        path: Path,
        program: ExportedProgram,
        regions: Sequence[Region] = (),
    ) -> None:
        """Read the model and look for layers that are the same.

        Args:
            path: the ``.onnx`` file.
            program: what it was converted from; its weights may be mapped.
            regions: files in which these lie.

        Raises:
            UsageError: the file cannot be read, or the program draws random numbers.
        """
        self.model = with_own_outputs(io.load(path))
        self._program, self._plain = program, prepared(program)
        self.mode = StandIns()
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
        self._runner = Runner("all", beside=[path.with_name(file.name) for file in sorted(files)])
        signature = read_signature(program)
        origins = align_program(self._plain, graph, returned_names(signature))
        self._keys = {name: one.key for name, one in origins.items() if ":" not in one.key}
        inputs = zip(signature.inputs, program_inputs(program), strict=True)
        self._known = self._keys | {slot.name: node.name for slot, (_, node) in inputs}
        self.pieces = find_pieces(graph, self._plain, self._known, regions)
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

    def bytes_returned(self, sizes: Mapping[str, int]) -> int:
        """Bytes of the outputs at some sizes; those of sizes that are not known are left out."""
        found = 0
        for value in self.model.graph.outputs:
            shape = [parse_size(str(getattr(s, "value", s))) for s in value.shape or ()]
            if value.dtype is not None and all(names_in(size) <= sizes.keys() for size in shape):
                numbers = math.prod(evaluate(size, sizes) for size in shape)
                found += numbers * value.dtype.bitwidth // 8
        return found

    def returned(self, call: Call, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the program returns with other weights, `shared` or `bare`, by its names.

        Raises:
            UsageError: the program fails on these arguments.
        """
        wanted = {self._keys[str(value.name)] for value in self.model.graph.outputs}
        feeds = program_feeds(self._program, *call)
        stream = trace_program(self._plain, feeds, weights, self.mode)
        return {key: tensor for key, tensor in stream if key in wanted}

    @cached_property
    def shared(self) -> dict[str, torch.Tensor]:
        """Weights of the layers that are not run, by name: those of the layer that each is like.

        What only products take is a `StandIns`. With them the module and its program run every
        layer, and only few weights are read.
        """
        held = {**self._plain.state_dict, **self._plain.constants}
        pairs = ((a, b) for piece in self.pieces for a, b in piece.weights.items())
        return {
            a: self.mode.stand_in(a, held[b]) if a in self._products else held[b] for a, b in pairs
        }

    @cached_property
    def bare(self) -> dict[str, torch.Tensor]:
        """The same, and stand-ins for what products take in all other layers and around them."""
        held = {**self._plain.state_dict, **self._plain.constants}
        return {a: self.mode.stand_in(a, held[a]) for a in self._products} | self.shared

    @cached_property
    def _products(self) -> set[str]:
        return product_weights(self._plain)

    def run(self, call: Call, tolerance: Tolerance, *, every: bool = False) -> Iterator[Held]:
        """Give each piece the program's values, and judge what it makes of them.

        Args:
            call: arguments, as the program nests them.
            tolerance: what passes, if the user sets it or for the model's dtype.
            every: run the layers too that are like others, and all with their own weights.

        Raises:
            UsageError: the program fails on these arguments.
        """
        given = self._given(call)
        weights = {} if every else self.shared
        feeds = program_feeds(self._program, *call)
        stream = trace_program(self._plain, feeds, weights, self.mode)
        wanted = {self._keys.get(str(value.name)) for p in self.pieces for value in p.leaving}
        right: dict[str, torch.Tensor] = {}
        for piece in self.pieces:
            needed = {self._keys.get(str(value.name)) for value in piece.leaving} - {None}
            while not needed <= right.keys() and (pair := next(stream, None)):
                right |= [pair] if pair[0] in wanted else []
            if piece.like and not every:
                self._hand_on(piece, right, given)
                for name in (str(v.name) for v in piece.leaving if v.is_graph_output()):
                    yield Held(name, piece.layer, None, right[self._keys[name]])
            else:
                yield from self._judged(piece, right, given, tolerance)

    def outputs(self, call: Call) -> dict[str, torch.Tensor | None]:
        """What the ONNX model returns, by name: every layer is run, on what was computed before.

        Raises:
            RunError: onnxruntime fails.
        """
        given = self._given(call)
        for piece in self.pieces:
            given |= self._computed(piece, given)
        names = [str(value.name) for value in self.model.graph.outputs]
        return {name: tensor_of_ort(given[name]) for name in names}

    def _given(self, call: Call) -> dict[str, onnxruntime.OrtValue]:
        feeds = model_feeds(self.model, *call, read_signature(self._program).parameters)
        return {name: ort_value(tensor) for name, tensor in feeds.items()}

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
        """Let what follows take the program's values, of a layer that was not run or failed.

        Raises:
            RunError: it takes others too.
        """
        for value in piece.leaving:
            name = str(value.name)
            if (key := self._keys.get(name, "")) in right:
                given[name] = _as_declared(right[key], value.dtype)
            elif not value.is_graph_output():
                raise RunError(f"nothing is known of {name}, which is read after a failure")

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
            self._hand_on(piece, right, given)
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
        keys = {self._known[one]: one for one in taken if one in self._known}
        part = None if difference.reason else part_of(self._plain, keys, self._keys[name])
        if part is None:
            return Verdict("differs", difference)
        needed = [node.name for node in part.graph.find_nodes(op="placeholder")]
        values = {key: tensor_of_ort(taken[keys[key]]) for key in needed}
        again = Reference(lambda model, given: [model(**given)], part, values,
                          tolerance=tolerance, expected=[expected])  # fmt: skip
        ((_, verdict),) = again.judge([got])
        return verdict


def _as_declared(tensor: torch.Tensor, dtype: ir.DataType | None) -> onnxruntime.OrtValue:
    """A value of the program, in the dtype that the ONNX model has there."""
    value = ort_value(tensor)
    if dtype is None or value.element_type() == int(dtype):
        return value
    return ort_value(tensor.to(torch_dtype(int(dtype)) or tensor.dtype))
