"""Run an ONNX model in which operators stand for modules: the modules do their part themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype

from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.replace.operator import DOMAIN, Operator, compute_results
from torchferry.diagnoser.replace.replace import ShapeFunctions, StandIn
from torchferry.diagnoser.replace.segment import Stage, cut_at, open_segment
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.runner.feeds import Feeder, InputInfo
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["RestSession"]


class RestSession:
    """A model that `write_rest` wrote, with the modules that its operators stand for.

    Called with the arguments of the original model, it runs onnxruntime up to the operators, the
    modules on what comes out, and so on; it returns what the original model returns. As a program
    does, it leaves its arguments as they are: a cache that grows is returned.

    Attributes:
        path: the model's file.
        stages: what runs one after the other.
    """

    def __init__(
        self,
        path: Path | str,
        culprits: Sequence[Piece],
        shape_functions: ShapeFunctions | None = None,
    ) -> None:
        """Load the model.

        Args:
            path: the file that `write_rest` wrote.
            culprits: the pieces it was given.
            shape_functions: those it was given.

        Raises:
            UsageError: the file cannot be read, an operator stands for none of the pieces, or
                one stands in a branch or a loop.
            RunError: onnxruntime cannot load what is between the operators.
        """
        self.path = Path(path)
        model = io.load(self.path)
        if SIGNATURE_KEY not in model.metadata_props:
            raise UsageError(f"{path} was not written by torchferry: its nesting is not known")
        self._signature = Signature.from_json(model.metadata_props[SIGNATURE_KEY])
        infos = {str(value.name): _info(value) for value in model.graph.inputs}
        self._feeder = Feeder(self._signature, infos)
        self._initial = {
            str(value.name): _constant(value)
            for value in model.graph.initializers.values()
            if value.is_graph_output() or any(n.domain == DOMAIN for n, _ in value.uses())
        }
        made = [StandIn(piece, shape_functions, symbolic=True) for piece in culprits]
        self._operators = {name: one for each in made for name, one in each.named.items()}
        self.stages: list[Stage] = cut_at(model.graph, DOMAIN)
        self._check()
        self._sessions = [open_segment(model, one) if one.outputs else None for one in self.stages]

    def _check(self) -> None:
        names = {node.op_type for stage in self.stages for node in stage.operators}
        missing = sorted(names - self._operators.keys())
        if missing:
            raise UsageError(
                f"nothing is known of {missing[0]} in {self.path}: give the piece it stands for "
                "among the culprits"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Raises:
            UsageError: the arguments do not fit.
            RunError: onnxruntime failed; names the node.
        """
        known = {**self._initial, **self._feeder(args, kwargs)}
        for stage, session in zip(self.stages, self._sessions, strict=True):
            if session is not None:
                feeds = {str(value.name): known[str(value.name)] for value in stage.inputs}
                known.update(session.run(feeds))
            for node in stage.operators:
                given = [known[str(value.name)] for value in node.inputs if value is not None]
                made = _run_operator(self._operators[node.op_type], given)
                names = (str(value.name) for value in node.outputs)
                known.update(zip(names, made, strict=True))
        return self._signature.nest(known)


def _run_operator(operator: Operator, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a module computes from the inputs of the node that stands for it.

    Args:
        operator: as the module was recorded.
        tensors: one for each tensor or number among its arguments.

    Returns:
        Every tensor it returns, then every one it leaves behind in its arguments.
    """
    leaves = operator.example
    for place, tensor in zip(operator.places, tensors, strict=True):
        is_tensor = isinstance(leaves[place], torch.Tensor)
        device = leaves[place].device if is_tensor else None
        leaves[place] = tensor.to(device) if is_tensor else type(leaves[place])(tensor.item())
    with torch.no_grad():
        return [result.cpu() for result in compute_results(operator, leaves)]


def _info(value: ir.Value) -> InputInfo:
    """Dtype and shape of a graph input; the shape holds sizes and names of dimensions."""
    if value.dtype is None or value.shape is None:
        raise UsageError(f"input {value.name} has no type: the file was changed")
    sizes = [size if isinstance(size, int) else size.value for size in value.shape]
    return to_torch_dtype(value.dtype), sizes


def _constant(value: ir.Value) -> torch.Tensor:
    """An initializer; numpy has no bfloat16, so by its numbers."""
    tensor = value.const_value
    if tensor is None:
        raise UsageError(f"initializer {value.name} has no value: the file was changed")
    dtype = to_torch_dtype(tensor.dtype)
    return torch.tensor(tensor.numpy().tolist(), dtype=dtype).reshape(tensor.numpy().shape)
