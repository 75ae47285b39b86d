"""Watch a model run and say what its inputs are: every call, and which dimensions vary and why."""

from torchferry.observer.hints import use_dyn_not_str, use_str_not_dyn
from torchferry.observer.model_inputs import ModelInputs
from torchferry.observer.naming import conventional_name
from torchferry.observer.observation import Argument, Axis, Call, Observation
from torchferry.observer.record import observe
from torchferry.observer.steal import steal_forward
from torchferry.observer.storage import steal_append

__all__ = [
    "Argument",
    "Axis",
    "Call",
    "ModelInputs",
    "Observation",
    "conventional_name",
    "observe",
    "steal_append",
    "steal_forward",
    "use_dyn_not_str",
    "use_str_not_dyn",
]
