"""Watch a model run and say what its inputs are: every call, and which dimensions vary and why."""

from torchferry.observer.naming import conventional_name
from torchferry.observer.observation import Argument, Axis, Call, Observation
from torchferry.observer.record import observe

__all__ = ["Argument", "Axis", "Call", "Observation", "conventional_name", "observe"]
