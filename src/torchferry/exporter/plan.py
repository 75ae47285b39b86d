"""What a caller of an export chose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from torchferry.capturer.rewrite.rewriting import Rewrite
from torchferry.capturer.state.lift import Lifted, State, check_state
from torchferry.converter.convert import OPSETS, TORCH_OPSETS, check_opset
from torchferry.converter.rename import Names
from torchferry.errors import UsageError
from torchferry.exporter.memory import WAYS, Verify, can_take_layers, way_to_verify
from torchferry.exporter.steps import Steps
from torchferry.graph.reference import Region
from torchferry.graph.runtime import check_version, newest_opset
from torchferry.judge.tolerance import Tolerance
from torchferry.optimizer import TARGETS, Target

__all__ = ["EXPORTERS", "Exporter", "Options", "Plan", "check_options"]

Exporter = Literal["to_onnx", "onnx_dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("to_onnx", "onnx_dynamo")


def check_options(
    target: str, exporter: str, opset: int | None, *, rewrite: Rewrite = "auto",
    onnxruntime: str | None = None, state: State = "refuse", verify: str = "auto",
) -> None:  # fmt: skip
    """Check, before any work is done, what is chosen by name or number.

    Raises:
        UsageError: an unknown target, exporter or version, an opset that cannot be written or
            read, or a rewrite for an exporter that captures the model itself.
    """
    for value, known, what in (
        (target, TARGETS, "target"), (exporter, EXPORTERS, "exporter"),
        (verify, WAYS, "way to verify"),
    ):  # fmt: skip
        if value not in known:
            raise UsageError(f"unknown {what} {value!r}: choose one of {', '.join(known)}")
    asked = "rewrite" * (rewrite is True) or "state lift" * (check_state(state) == "lift")
    if asked and exporter != "to_onnx":
        raise UsageError(f"{asked} needs exporter to_onnx: {exporter} captures the model itself")
    if verify == "layers" and not can_take_layers(exporter, state):
        raise UsageError(
            "verify layers needs exporter to_onnx and state refuse: leave it out, or them"
        )
    check_opset(opset, TORCH_OPSETS if exporter == "onnx_dynamo" else OPSETS)
    newest = newest_opset(version := check_version(onnxruntime))
    if opset is not None and opset > newest:
        raise UsageError(f"onnxruntime {version} reads opset {newest} at most: leave out {opset}")


@dataclass(frozen=True)
class Plan:
    """What the caller chose."""

    target: Target
    opset: int | None
    exporter: Exporter
    tolerance: Tolerance | None
    steps: Steps
    regions: tuple[Region, ...]
    check: bool
    rewrite: Rewrite
    strict: bool
    budget: float | None
    onnxruntime: str | None
    state: State
    names: tuple[Names, Names]
    repeat: bool
    verify: Verify = "auto"
    automatic: bool = False  # whether that was not the user's choice
    lifted: Lifted | None = None

    def __post_init__(self) -> None:
        check_options(
            self.target, self.exporter, self.opset, rewrite=self.rewrite,
            onnxruntime=self.onnxruntime, state=self.state, verify=self.verify,
        )  # fmt: skip

    def for_size(self, size: int) -> Plan:
        """The plan for a model with so many bytes of weights."""
        able = can_take_layers(self.exporter, self.state)
        if not able or self.verify != "auto":
            return self
        return replace(self, verify=way_to_verify(self.verify, size), automatic=True)

    @property
    def layers(self) -> bool:
        """Whether the model is verified by layers."""
        return self.check and self.verify == "layers"


class Options(TypedDict, total=False):
    """Arguments of `export` that commands hand on."""

    target: Target
    opset: int | None
    exporter: Exporter
    check: bool
    rewrite: Rewrite
    strict: bool
    budget: float | None
    onnxruntime: str | None
    state: State
    repeat: bool
    verify: Verify
