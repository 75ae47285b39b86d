"""The interface people know: run a model, then try each of its pieces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from torchferry.capturer import accept_aliases
from torchferry.diagnoser.explain.blame import who_raised
from torchferry.diagnoser.explain.text import pretty_lines, report_rows, report_text
from torchferry.diagnoser.record.functions import find_functions
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Methods, Piece, Record, build_tree
from torchferry.diagnoser.record.variant import Variant, variants
from torchferry.diagnoser.replace.replace import ShapeFunctions, StandIn, shape_rule
from torchferry.diagnoser.replace.strategy import CustomOpStrategy, Strategy, check_strategy
from torchferry.diagnoser.search import Search
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.quiet import telling
from torchferry.diagnoser.trial.status import StatusExport
from torchferry.errors import FerryError, UsageError
from torchferry.notebook import table_html
from torchferry.observer.given import sets_of
from torchferry.observer.model_inputs import ModelInputs
from torchferry.observer.sets import Arguments, as_arguments
from torchferry.values.attributes import attributes_kept
from torchferry.values.clone import clone
from torchferry.values.flatten import flatten
from torchferry.values.kinds import attempt

__all__ = ["ModelDiagnoseOutput", "trace_execution_piece_by_piece", "trace_forward_execution"]

Rule = tuple[int | tuple[int, ...], torch.dtype, Callable[..., Any] | None]


class ModelDiagnoseOutput(Piece):
    """A module, the calls of it that were seen, and what came of exporting it.

    Attributes:
        exporter: what was tried last.
        exporter_status: what came of it; None before.
        last_error: the exception of the last try, if there was one.
    """

    exporter: str | None = None
    exporter_status: StatusExport | None = None
    last_error: BaseException | None = None
    _stand_in: tuple[StandIn, Any] | None = None

    def guess_dynamic_shapes(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Which dimensions vary between the recorded calls, ``(for args, for kwargs)``.

        One call says of no dimension that it varies.

        Raises:
            UsageError: there was no call, or an argument changes its rank or dtype.
        """
        if not self.calls:
            raise UsageError(f"{self.full_name} was never called: nothing is known of its inputs")
        given = ModelInputs(self.model, self.inputs, self.method_name)
        return given.guess_dynamic_shapes()

    def try_export(  # noqa: PLR0917  (the order in which people who know the method give them)
        self,
        exporter: str = "fx",
        exporter_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        quiet: bool = True,
        discrepancies: bool = True,
        use_dynamic_shapes: bool | None = None,
        replace_by_custom_op: Strategy = CustomOpStrategy.NONE,
        atol: float | None = None,
        rtol: float | None = None,
        shape_functions: ShapeFunctions | None = None,
    ) -> StatusExport:
        """Export the module; when that fails, its submodules, until it is known which one fails.

        Args:
            exporter: ``fx`` for torch.export, ``onnx_dynamo`` and ``torch_script`` for
                torch.onnx.export, ``to_onnx`` for torchferry's own.
            exporter_kwargs: handed on to the exporter.
            verbose: 1 tells what is tried.
            quiet: a failure is a status; else the first one is raised.
            discrepancies: run what was exported on every recorded input and compare.
            use_dynamic_shapes: dimensions that vary are dynamic; None: when there are two calls.
            replace_by_custom_op: when submodules are replaced by custom operators.
            atol: largest absolute difference that is none; None: what ``Tolerance`` allows.
            rtol: the same for relative ones.
            shape_functions: for what is replaced, where its output shapes cannot be found.

        Returns:
            The status of this module; those below are in the ``exporter_status`` of each.

        Raises:
            UsageError: an argument is none of those above.
        """
        options = Options(
            exporter, dict(exporter_kwargs or {}), quiet, discrepancies, use_dynamic_shapes,
            atol, rtol,
        )  # fmt: skip
        options.check()
        check_strategy(replace_by_custom_op, self)
        search = Search(options, replace_by_custom_op, shape_functions)
        with telling(verbose):
            return self.take(search)

    def take(self, search: Search) -> StatusExport:
        """Run a search from here and keep what it finds; what an earlier one found is dropped."""
        for piece in self.walk():
            piece.exporter, piece.exporter_status, piece.last_error = None, None, None
        try:
            with attributes_kept(self.model):
                return search.visit(self)
        finally:
            for piece in self.walk():
                piece.exporter_status = search.verdicts.get(id(piece))
                if piece.exporter_status is not None:
                    piece.exporter = search.options.exporter
                    piece.last_error = piece.exporter_status.error

    def get_export_report(self, exported_program: bool = False, fx: bool = False) -> str:
        """One line a module: its name, class, and what came of it.

        Args:
            exported_program: add what was exported.
            fx: add its graph instead.
        """
        return report_text(self, _status_of, exported_program, fx)

    def __repr__(self) -> str:
        """What piece of the model it is; `pretty_text` shows all of it."""
        return f"ModelDiagnoseOutput({self.title})"

    def _repr_html_(self) -> str:
        columns = ("module", "class", "status")
        return table_html(repr(self), columns, report_rows(self, _status_of))

    def pretty_text(
        self,
        with_dynamic_shape: bool = False,
        with_shape: bool = True,
        with_min_max: bool = False,
        with_device: bool = False,
        with_inputs: bool = True,
    ) -> str:
        """The modules with the inputs and outputs of every call.

        Args:
            with_dynamic_shape: show which dimensions vary.
            with_shape: see `string_type`, as for the next two.
            with_min_max: as above.
            with_device: as above.
            with_inputs: show inputs and outputs.
        """
        return "\n".join(
            pretty_lines(
                self,
                shapes=_shapes_of if with_dynamic_shape else None,
                with_inputs=with_inputs,
                with_shape=with_shape,
                with_min_max=with_min_max,
                with_device=with_device,
            )
        )

    def put_custom_op_inplace(
        self, shape_functions: ShapeFunctions | None = None, verbose: int = 0
    ) -> None:
        """Let the module call one custom operator, until `remove_custom_op_inplace`.

        Args:
            shape_functions: for outputs whose shape cannot be found.
            verbose: 1 tells of it.

        Raises:
            UsageError: it is replaced already, was never called, or the shape of an output is
                not known: says which.
        """
        if self._stand_in is not None:
            raise UsageError(f"{self.full_name} is replaced already")
        with telling(verbose):
            made = StandIn(self, shape_functions)
        self._stand_in = made, made.put()

    def remove_custom_op_inplace(self, verbose: int = 0) -> None:
        """Let the module do again what it did; nothing happens where it was not replaced.

        Args:
            verbose: 1 tells of it.
        """
        with telling(verbose):
            if self._stand_in is not None:
                made, own = self._stand_in
                self._stand_in = None
                made.remove(own)

    def determine_shape_fct(
        self,
        output_index: int,
        flattened_inputs: Sequence[Any] | None = None,
        flattened_outputs: Sequence[Any] | None = None,
        verbose: int = 0,
        shape_functions: ShapeFunctions | None = None,
    ) -> Callable[..., torch.Tensor]:
        """How the shape of an output follows from the inputs.

        Args:
            output_index: of the flattened outputs that are tensors.
            flattened_inputs: not needed: the recorded ones are taken.
            flattened_outputs: not needed either.
            verbose: 1 tells what is tried.
            shape_functions: for outputs whose shape cannot be found.

        Returns:
            A function of the flattened inputs (numbers and None among them) that gives an empty
            tensor of the output's shape, dtype and device.

        Raises:
            UsageError: the shape is not known, or there is no such output.
        """
        del flattened_inputs, flattened_outputs
        variant = self._variant()
        outputs = _tensors(variant.calls[0])
        if not 0 <= output_index < len(outputs):
            raise UsageError(
                f"{self.full_name} returns {len(outputs)} tensors; there is none {output_index}"
            )
        with telling(verbose):
            rule = shape_rule(self, variant, shape_functions)
        example = outputs[output_index]

        def shaped(*leaves: Any) -> torch.Tensor:
            return example.new_empty(tuple(rule(leaves, output_index)))

        return shaped

    def build_shape_mapping_indices(
        self, shape_functions: ShapeFunctions | None = None, verbose: int = 0
    ) -> list[Rule]:
        """For every output tensor: which flattened inputs to look at, its dtype, and how.

        Args:
            shape_functions: for outputs whose shape cannot be found.
            verbose: 1 tells what is tried.

        Returns:
            ``(index, dtype, None)`` when it has the shape of that input in every call, else
            ``(indices of all tensors, dtype, function)``; see `determine_shape_fct`.

        Raises:
            UsageError: the shape of an output is not known.
        """
        variant = self._variant()
        outputs = [_tensors(call) for call in variant.calls]
        given = [self.normalized(call.args, call.kwargs) for call in variant.calls]
        inputs = [[leaf for _, leaf in flatten(one)[0]] for one in given]
        places = [i for i, leaf in enumerate(inputs[0]) if isinstance(leaf, torch.Tensor)]
        rules: list[Rule] = []
        for number, example in enumerate(outputs[0]):
            pairs = list(zip(inputs, outputs, strict=True))
            same = [i for i in places if all(x[i].shape == y[number].shape for x, y in pairs)]
            if same:
                rules.append((same[0], example.dtype, None))
                continue
            shaped = self.determine_shape_fct(
                number, verbose=verbose, shape_functions=shape_functions
            )
            rules.append((tuple(places), example.dtype, shaped))
        return rules

    def _variant(self) -> Variant:
        if not self.calls:
            raise UsageError(f"{self.full_name} was never called: its shapes are not known")
        return variants(self, numbers=True)[0]


def _status_of(piece: Piece) -> StatusExport | None:
    return piece.exporter_status if isinstance(piece, ModelDiagnoseOutput) else None


def _shapes_of(piece: Piece) -> Any:
    """Dynamic shapes, or why there are none: calls of two kinds have none in common."""
    try:
        return ModelInputs(piece.model, piece.inputs, piece.method_name).guess_dynamic_shapes()
    except UsageError as error:
        return f"<{str(error).splitlines()[0]}>"


def _tensors(call: Record) -> list[torch.Tensor]:
    return [leaf for _, leaf in flatten(call.outputs)[0] if isinstance(leaf, torch.Tensor)]


def trace_execution_piece_by_piece(
    model: torch.nn.Module,
    inputs: Iterable[Sequence[Any] | Mapping[str, Any]] | Callable[..., Any],
    verbose: int = 0,
    traced_method: Methods | None = None,
    traced_functions: Sequence[str] = (),
) -> ModelDiagnoseOutput:
    """Run a model and record every call of every module in it.

    The model is as it was afterwards, whatever happens. Inputs are copied before each run.

    Args:
        model: any module.
        inputs: sets of different sizes, each ``(args tuple)``, ``(kwargs dict)`` or
            ``(args, kwargs)``; or a function of named sizes that returns one set.
        verbose: 1 tells what is run.
        traced_method: which method is traced where it is not ``forward``, by class, class name or
            dotted path; an empty one: the module is not traced at all.
        traced_functions: ``module.function`` of functions that become pieces too, each of the
            module that calls it first; the module is the one whose code calls it by that name.

    Returns:
        The model as a piece, its submodules below it.

    Raises:
        UsageError: there are no inputs, they do not fit, the model raises on them (says which
            module, at which line), or a method is not there.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 3))
    >>> found = trace_execution_piece_by_piece(model, [(torch.ones(n, 8),) for n in (2, 5)])
    >>> print(found.get_export_report())
    __main__   Sequential   <OK-2i-0>
    ..0        Linear       <OK-2i-0>
    """
    inputs = sets_of(model, inputs)
    if isinstance(inputs, Mapping | torch.Tensor) or not isinstance(inputs, Iterable):
        raise UsageError("inputs is a list of sets: [(args, kwargs), ...]; one set is [set]")
    sets = [as_arguments(one) for one in inputs]
    if not sets:
        raise UsageError(f"no input set of {type(model).__name__} was given: give two or more")
    with trace_forward_execution(model, verbose, traced_method, traced_functions) as root:
        _run(root, sets)
    return root


def _run(root: Piece, sets: Sequence[Arguments]) -> None:
    model = root.model
    with torch.no_grad(), attributes_kept(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (args, named) in enumerate(sets, 1):
            kwargs = accept_aliases(model, named) if root.method_name == "forward" else named
            try:
                root.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise UsageError(
                    f"an input set does not fit {type(model).__name__}.{root.method_name}: {error}"
                ) from error
            copied_args, copied_kwargs = clone((args, kwargs))
            _, wrong = attempt(partial(root.run, *copied_args, **copied_kwargs))
            if isinstance(wrong, FerryError):
                raise wrong
            if wrong is not None:
                raise UsageError(
                    f"{root.title} does not run on input set {number} of {len(sets)}: "
                    f"{who_raised(wrong, model)}. What PyTorch does not run cannot be exported"
                ) from wrong


@contextmanager
def trace_forward_execution(
    model: torch.nn.Module,
    verbose: int = 0,
    traced_method: Methods | None = None,
    traced_functions: Sequence[str] = (),
) -> Iterator[ModelDiagnoseOutput]:
    """Record every call of every module made inside the block, whoever makes it.

    Args:
        model: any module.
        verbose: 1 tells what is recorded.
        traced_method: see `trace_execution_piece_by_piece`.
        traced_functions: as above.

    Yields:
        The model as a piece, its submodules below it; the calls come as they end.

    Raises:
        UsageError: a method or function is not there.
    """
    root = build_tree(ModelDiagnoseOutput, model, traced_method)
    with telling(verbose), recorded(root, find_functions(traced_functions)):
        yield root
