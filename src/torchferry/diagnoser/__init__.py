"""Piece by piece: which module of a model breaks its export, at which line, and what to do.

Read `diagnose` and `search`, then the folders in the order of the work: `record` (pieces and their
calls), `trial` (one piece exported), `replace` (what is left without it), `explain`.
"""

from torchferry.diagnoser.diagnose import Culprit, Diagnosis, diagnose
from torchferry.diagnoser.output import (
    ModelDiagnoseOutput,
    trace_execution_piece_by_piece,
    trace_forward_execution,
)
from torchferry.diagnoser.replace.fallback import RestSession
from torchferry.diagnoser.replace.strategy import CustomOpStrategy
from torchferry.diagnoser.trial.process import Limits
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode

__all__ = [
    "Culprit",
    "CustomOpStrategy",
    "Diagnosis",
    "Limits",
    "ModelDiagnoseOutput",
    "RestSession",
    "StatusExport",
    "StatusExportCode",
    "diagnose",
    "trace_execution_piece_by_piece",
    "trace_forward_execution",
]
