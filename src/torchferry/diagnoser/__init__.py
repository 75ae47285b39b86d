"""Piece by piece: which module of a model breaks its export, at which line, and what to do."""

from torchferry.diagnoser.diagnose import Culprit, Diagnosis, diagnose
from torchferry.diagnoser.fallback import RestSession
from torchferry.diagnoser.output import (
    ModelDiagnoseOutput,
    trace_execution_piece_by_piece,
    trace_forward_execution,
)
from torchferry.diagnoser.process import Limits
from torchferry.diagnoser.status import StatusExport, StatusExportCode
from torchferry.diagnoser.strategy import CustomOpStrategy

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
