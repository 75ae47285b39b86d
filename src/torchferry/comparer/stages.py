"""Which step of the way brought a difference in: conversion, optimization, or onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
import torch

from torchferry.comparer.comparison import Stage, difference_of
from torchferry.comparer.piece import LEVELS, Runner, ort_value, tensor_of_ort
from torchferry.comparer.setting import Setting
from torchferry.comparer.walk import Allows
from torchferry.converter import convert
from torchferry.errors import ConversionError, RunError, UsageError
from torchferry.optimizer import TARGETS, optimize
from torchferry.values.difference import Discrepancy, worst

__all__ = ["bisect_stages"]


def bisect_stages(
    setting: Setting, expected: Mapping[str, torch.Tensor], allows: Allows
) -> Iterator[Stage]:
    """Compare the outputs after each stage of the way.

    Where the reference is a program it is converted and optimized anew, for each target; then the
    ONNX model itself is run at each level of onnxruntime's optimizations.

    Args:
        setting: what is compared.
        expected: the reference's values of the graph's outputs, by name.
        allows: whether a value passes.
    """
    program = setting.reference.program
    if program is not None:
        try:
            fresh = convert(program, opset=setting.onnx.opset_imports.get("", None))
        except (ConversionError, UsageError) as error:
            yield Stage("convert", _failed(error), ok=False)
        else:
            yield Stage("convert", *_after(fresh, Runner(), setting, expected, allows))
            for target in TARGETS:
                model = optimize(fresh.clone(), target=target)
                found = _after(model, Runner(), setting, expected, allows)
                yield Stage(f"optimize for {target}", *found)
    for level in LEVELS:
        runner = Runner(level, setting.runner.providers)
        found = _after(setting.onnx, runner, setting, expected, allows)
        yield Stage(f"the file, onnxruntime's optimizations: {level}", *found)


def _after(
    model: ir.Model,
    runner: Runner,
    setting: Setting,
    expected: Mapping[str, torch.Tensor],
    allows: Allows,
) -> tuple[Discrepancy, bool]:
    """The worst difference of outputs, in the order of the model compared, and if all pass."""
    names = [str(value.name) for value in setting.onnx.graph.outputs]
    feeds = {name: ort_value(tensor) for name, tensor in setting.feeds.items()}
    try:
        found = list(runner(model, feeds).values())
    except RunError as error:
        return _failed(error), False
    pairs = [
        (expected[name], difference_of(expected[name], tensor_of_ort(value)))
        for name, value in zip(names, found, strict=True)
        if name in expected
    ]
    if not pairs:
        return Discrepancy(), True
    return worst(difference for _, difference in pairs), all(allows(*pair) for pair in pairs)


def _failed(error: Exception) -> Discrepancy:
    infinite = float("inf")
    return Discrepancy(infinite, infinite, infinite, reason=" ".join(str(error).split())[:300])
