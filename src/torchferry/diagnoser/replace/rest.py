"""An ONNX model of everything that can be exported, with names for what cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchferry.capturer import capture
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.record.widen import main_variant
from torchferry.diagnoser.replace.fallback import RestSession
from torchferry.diagnoser.replace.operator import DOMAIN
from torchferry.diagnoser.replace.replace import ShapeFunctions, StandIn, replaced
from torchferry.diagnoser.trial.attempt import convert_seen
from torchferry.diagnoser.trial.comparison import judge_call
from torchferry.diagnoser.trial.made import as_module
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.judge.reference import BAKED
from torchferry.observer.observation import Call
from torchferry.values.attributes import attributes_kept
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = ["rest_note", "write_rest"]

_UNSTEADY = "its numbers are random or depend on earlier calls, so that it was not compared"


def write_rest(
    tree: Piece,
    culprits: Sequence[Piece],
    path: Path,
    shape_functions: ShapeFunctions | None = None,
) -> Path:
    """Write the model with each culprit as one operator of the domain ``diag_lib``.

    Onnxruntime has no such operators: the file is to be looked at, or run with a `RestSession`.
    Their outputs have shapes, in which the dimensions carry the model's names.

    Args:
        tree: the model, recorded.
        culprits: pieces of it to be replaced.
        path: ``NAME.onnx``, in a folder that exists.
        shape_functions: for outputs whose shape cannot be found.

    Raises:
        UsageError: the model itself is a culprit, the shape of an output is not known, or the
            file cannot be written.
        CaptureError: the rest cannot be exported either.
        ConversionError: an operator of the rest has no ONNX form.
    """
    if any(piece is tree for piece in culprits):
        raise UsageError(
            f"the code of {tree.title} itself cannot be exported, so nothing would be left around "
            f"an operator of the domain {DOMAIN}"
        )
    stand_ins = [StandIn(piece, shape_functions) for piece in culprits]
    _, found = main_variant(tree)
    with replaced(stand_ins), quiet():
        captured = capture(as_module(tree), found.seen, rewrite=False)
        made = convert_seen(captured, found.seen)
    io.save(made, path)
    return path


def rest_note(tree: Piece, session: RestSession, options: Options) -> str:
    """What is to be known of a file of `write_rest`: it was not made by the exporter that failed.

    Args:
        tree: the model, recorded.
        session: the file.
        options: their limits hold.

    Returns:
        how far it is from the recorded outputs, or why that is not known; nothing where it gives
        them.
    """
    # The modules in it are the user's code.
    with quiet(), attributes_kept(tree.model):
        note, wrong = attempt(_compared, tree, session, options)
    return f"it does not run on recorded inputs: {wrong}" if wrong is not None else str(note)


def _compared(tree: Piece, session: RestSession, options: Options) -> str:
    def run(call: Call) -> Any:
        args, kwargs = clone((call.args, call.kwargs))
        return session(*args, **kwargs)

    variant, _ = main_variant(tree)
    for call in variant.calls:
        found = judge_call(tree, call, run(call), run, options)
        if found.kind == "random" or found.evidence == BAKED:
            return _UNSTEADY
        if not found.ok:
            return (
                f"it gives other numbers than PyTorch for recorded inputs: {found.numbers}. "
                "Diagnose with the exporter to_onnx to see where"
            )
    return ""
