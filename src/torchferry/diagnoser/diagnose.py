"""Which modules break the export of a model, at which lines, and what to do about each.

>>> class Signed(torch.nn.Module):
...     def forward(self, x):
...         return x if x.sum() > 0 else -x
>>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), Signed())
>>> found = diagnose(model, [(torch.ones(n, 4),) for n in (2, 5)])
>>> [(culprit.places, culprit.title) for culprit in found.culprits]
[(('1',), 'Signed')]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from torchferry.diagnoser.explain.reproduction import write_reproduction
from torchferry.diagnoser.explain.text import report_rows
from torchferry.diagnoser.output import ModelDiagnoseOutput, trace_execution_piece_by_piece
from torchferry.diagnoser.record.tree import Methods, Piece
from torchferry.diagnoser.replace.fallback import RestSession
from torchferry.diagnoser.replace.replace import ShapeFunctions
from torchferry.diagnoser.replace.rest import rest_note, write_rest
from torchferry.diagnoser.replace.strategy import CustomOpStrategy
from torchferry.diagnoser.search import Search
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.process import Limits
from torchferry.diagnoser.trial.status import StatusExport
from torchferry.errors import FerryError, UsageError
from torchferry.progress import Progress, show_steps
from torchferry.values.attributes import attributes_kept

__all__ = ["Culprit", "Diagnosis", "diagnose"]

_REPLACING = CustomOpStrategy.ONLY_IF_FAILING
_PLACES = 3  # of a culprit, that its name tells

Rest = tuple[Path | None, str, str]
"""The file, or None and why there is none; and what is to be known of it."""


@dataclass(frozen=True)
class Culprit:
    """Code that cannot be exported; modules of one class that fail in one way are one.

    Attributes:
        places: where the modules stand: ``("layers.0.attention", "layers.1.attention")``.
        title: their class.
        status: what came of the first.
        script: the minimal reproduction that was written, if one was asked for.
        refused: why there is none.
    """

    places: tuple[str, ...]
    title: str
    status: StatusExport
    script: Path | None = None
    refused: str = ""

    @property
    def where(self) -> str:
        """The first places, how many more there are, and the class."""
        first = ", ".join(place or "the model itself" for place in self.places[:_PLACES])
        more = len(self.places) - _PLACES
        return f"{first}{f' and {more} more' if more > 0 else ''} ({self.title})"

    def __str__(self) -> str:
        status = self.status
        line = f", at {_place(status.line)}" if status.line else ""
        text = (status.reason.splitlines() or [status.step])[0].rstrip(" .")
        advice = f". {status.advice[:1].upper()}{status.advice[1:]}" if status.advice else ""
        return f"{self.where}: {text}{line}{advice}"


def _place(line: str) -> str:
    """``file:line: code`` with the code marked, so that its colons are not the sentence's."""
    place, _, code = line.partition(": ")
    return f"{place} `{code}`" if code else place


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` gives; printed, it is the report of the command.

    >>> import torchferry as tf
    >>> class Gate(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * float(x.mean()) if float(x.mean()) > 0 else x
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), Gate()).eval()
    >>> found = tf.diagnose(model, [(torch.ones(2, 3),), (torch.ones(4, 3),)], progress=False)
    >>> found.ok, [culprit.places for culprit in found.culprits]
    (False, [('1',)])

    Attributes:
        tree: the model as a piece; each piece below has its ``exporter_status``.
        exporter: what was tried.
        culprits: what has to be changed, in the order in which the modules stand.
        rest: the ONNX file of everything else, if it was asked for.
        rest_refused: why there is none.
        rest_note: how far it is from the model, or why that is not known.
        shape_functions: those that were given, which `open_rest` needs again.
    """

    tree: ModelDiagnoseOutput
    exporter: str
    culprits: tuple[Culprit, ...]
    rest: Path | None = None
    rest_refused: str = ""
    rest_note: str = ""
    shape_functions: ShapeFunctions | None = None

    @property
    def ok(self) -> bool:
        """Whether the whole model can be exported as it is."""
        return not self.culprits

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """For each module: indented name, class, status."""
        return list(report_rows(self.tree, _status_of))

    def open_rest(self) -> RestSession:
        """The model that was written as ``export_rest``, to be called as the model itself is.

        Onnxruntime runs what could be exported, PyTorch the modules that could not.

        Raises:
            UsageError: none was written, or it cannot be run: says why.
            RunError: onnxruntime cannot load its part.
        """
        if self.rest is None:
            raise UsageError(self.rest_refused or "give diagnose export_rest='NAME.onnx' first")
        places = {place for culprit in self.culprits for place in culprit.places}
        pieces = [piece for piece in self.tree.walk() if piece.path in places]
        return RestSession(self.rest, pieces, self.shape_functions)

    def __str__(self) -> str:
        note = f"\n{self.rest}: {self.rest_note}" if self.rest_note else ""
        return f"{self.tree.get_export_report()}{note}"


def _status_of(piece: Piece) -> StatusExport | None:
    return getattr(piece, "exporter_status", None)


def diagnose(
    model: torch.nn.Module,
    inputs: Iterable[Sequence[Any] | Mapping[str, Any]] | Callable[..., Any],
    *,
    exporter: str = "fx",
    exporter_kwargs: Mapping[str, Any] | None = None,
    traced_method: Methods | None = None,
    traced_functions: Sequence[str] = (),
    shape_functions: ShapeFunctions | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    limits: Limits | None = None,
    reproduce: Path | str | None = None,
    export_rest: Path | str | None = None,
    progress: Progress = None,
) -> Diagnosis:
    """Find the smallest pieces of a model that cannot be exported.

    The model is run and exported. Where that fails, so are its submodules; those that fail are
    replaced by custom operators, to see whether the rest works. What works is not looked into.
    The model is as it was afterwards, whatever happens.

    Args:
        model: any module.
        inputs: two or more sets of different sizes; see `trace_execution_piece_by_piece`.
        exporter: as for `ModelDiagnoseOutput.try_export`, as the next and the tolerances are.
        exporter_kwargs: handed on to the exporter.
        traced_method: see `trace_execution_piece_by_piece`.
        traced_functions: as above.
        shape_functions: for what is replaced, where its output shapes cannot be found.
        atol: see there.
        rtol: see there.
        limits: try each piece in its own process: a crash or a hang is a verdict then.
        reproduce: a folder for scripts that show each culprit by itself.
        export_rest: an ONNX file with the culprits as operators; `Diagnosis.open_rest` runs it.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Raises:
        UsageError: the inputs do not fit, or an option is none.
    """
    options = Options(exporter, dict(exporter_kwargs or {}), atol=atol, rtol=rtol)
    options.check()
    _check_places(reproduce, export_rest)
    search = Search(options, _REPLACING, shape_functions, below=False, limits=limits)
    kept = attributes_kept(model) if isinstance(model, torch.nn.Module) else nullcontext()
    with show_steps(progress) as say, kept:
        say("run the model")
        tree = trace_execution_piece_by_piece(model, inputs, 0, traced_method, traced_functions)
        return _told(tree, search, reproduce, export_rest, say)


def _check_places(reproduce: Path | str | None, export_rest: Path | str | None) -> None:
    """Refuse, before anything runs, files that could not be written."""
    if reproduce is not None and any(
        path.exists() and not path.is_dir()
        for path in (Path(reproduce), *Path(reproduce).resolve().parents)
    ):
        raise UsageError(f"reproduce={str(reproduce)!r}: a file stands there; give a folder")
    if export_rest is not None:
        rest = Path(export_rest)
        if rest.suffix != ".onnx" or rest.is_dir():
            raise UsageError(
                f"export_rest={str(rest)!r}: give the name of a file that ends in .onnx"
            )
        if not (rest.parent.is_dir() and os.access(rest.parent, os.W_OK)):
            raise UsageError(f"export_rest={str(rest)!r}: {rest.parent} is no folder to write to")


def _told(
    tree: ModelDiagnoseOutput,
    search: Search,
    reproduce: Path | str | None,
    export_rest: Path | str | None,
    say: Callable[[str], object],
) -> Diagnosis:
    """What a search finds, with the files that are asked for."""
    say("export piece by piece")
    tree.take(search)
    options = search.options
    pieces = _pieces(tree, search)
    culprits = _grouped(pieces)
    if reproduce is not None and culprits:
        say("write reproductions")
        failing = [search.parts.get(id(piece), piece) for piece in pieces]
        culprits = [_reproduced(one, failing, options, Path(reproduce)) for one in culprits]
    rest: Rest = (None, "", "")
    if export_rest is not None:
        say("export the rest")
        rest = _rest(tree, pieces, Path(export_rest), search)
    return Diagnosis(tree, options.exporter, tuple(culprits), *rest, search.shape_functions)


def _pieces(tree: ModelDiagnoseOutput, search: Search) -> list[ModelDiagnoseOutput]:
    """The culprits in the order in which they stand."""
    blamed = {id(piece) for piece in search.culprits(tree)}
    return [piece for piece in tree.walk() if id(piece) in blamed]


def _rest(tree: Piece, pieces: Sequence[Piece], path: Path, search: Search) -> Rest:
    try:
        write_rest(tree, pieces, path, search.shape_functions)
    except FerryError as error:  # what was found is worth more
        return None, str(error), ""
    try:
        session = RestSession(path, pieces, search.shape_functions)
    except FerryError as error:
        return path, "", f"it cannot be run: {error}"
    return path, "", rest_note(tree, session, search.options)


def _grouped(pieces: Sequence[ModelDiagnoseOutput]) -> list[Culprit]:
    """Modules of one class that fail in one way, together."""
    found: dict[tuple[Any, ...], list[ModelDiagnoseOutput]] = {}
    for piece in pieces:
        status = piece.exporter_status
        if status is not None:  # a culprit has one
            # A reason has numbers in it that differ from one trace to the next; a line has not.
            key = (type(piece.model), status.step, status.line or status.reason)
            found.setdefault(key, []).append(piece)
    return [
        Culprit(tuple(p.path for p in group), group[0].title, group[0].exporter_status)
        for group in found.values()
        if group[0].exporter_status is not None
    ]


def _reproduced(
    culprit: Culprit, pieces: Sequence[Piece], options: Options, folder: Path
) -> Culprit:
    piece = next(piece for piece in pieces if piece.path == culprit.places[0])
    try:
        script = write_reproduction(piece, culprit.status, options, folder)
    except UsageError as error:
        return replace(culprit, refused=str(error))
    return replace(culprit, script=script)
