"""Which step of the way brought a difference in: conversion, optimization, or onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import onnx_ir as ir
import torch

from torchferry.comparer.comparison import Stage
from torchferry.comparer.explain.judge import Allows
from torchferry.comparer.explain.rewrites import first_wrong
from torchferry.comparer.run.piece import LEVELS, Runner, ort_value, tensor_of_ort
from torchferry.comparer.setting import Setting
from torchferry.converter import convert
from torchferry.errors import ConversionError, RunError, UsageError
from torchferry.judge.value import difference_of
from torchferry.optimizer import TARGETS, optimize
from torchferry.values.difference import Discrepancy, worst

__all__ = ["bisect_stages"]

Judge = Callable[[ir.Model, Runner], tuple[Discrepancy, bool]]


def bisect_stages(
    setting: Setting, expected: Mapping[str, torch.Tensor], allows: Allows
) -> Iterator[Stage]:
    """Compare the outputs after each stage of the way.

    Where the reference is a program it is converted and optimized anew, for each target, as an
    ONNX reference is too; where that makes it wrong, the rewrite that does is found. Then the
    ONNX model itself is run at each level of onnxruntime's optimizations.

    Args:
        setting: what is compared.
        expected: the reference's values of the graph's outputs, by name.
        allows: whether a value passes.
    """
    judge = partial(_after, setting=setting, expected=expected, allows=allows)
    program, fresh = setting.reference.program, setting.reference.model
    if program is not None:
        try:
            fresh = convert(program, opset=setting.onnx.opset_imports.get("", None))
        except (ConversionError, UsageError) as error:
            yield Stage("convert", _failed(error), ok=False)
        else:
            yield Stage("convert", *judge(fresh, Runner()))
    if fresh is not None:
        yield from _optimized(fresh, judge)
    for level in LEVELS:
        found = judge(setting.onnx, Runner(level, setting.runner.providers))
        yield Stage(f"the file, onnxruntime's optimizations: {level}", *found)


def _optimized(fresh: ir.Model, judge: Judge) -> Iterator[Stage]:
    """Optimize a model for each target; where that makes it wrong, find the rewrite that does."""
    for target in TARGETS:
        found, ok = judge(optimize(fresh.clone(), target=target), Runner())
        patterns = "default" if target == "onnx" else f"default+{target}"
        culprit = None if ok else first_wrong(fresh, patterns, lambda m: judge(m, Runner())[1])
        yield Stage(f"optimize for {target}", found, ok, str(culprit or ""))


def _after(
    model: ir.Model,
    runner: Runner,
    *,
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
